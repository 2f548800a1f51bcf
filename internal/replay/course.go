// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"slices"
	"time"
)

// Figures are what a simulation comes to. Durations are Go duration strings;
// t50, t99 and t100 count from the return of the network until that share of
// the routers able to come back is connected, and are null if it never was.
type Figures struct {
	Routers           int    `json:"routers"`
	Dials             uint64 `json:"dials"`
	MaxConcurrent     int    `json:"maxConcurrent"`
	MaxDialsPerSecond int    `json:"maxDialsPerSecond"` // started within one second of the clock
	PoolFull          uint64 `json:"poolFull"`
	T50               *text  `json:"t50"`
	T99               *text  `json:"t99"`
	T100              *text  `json:"t100"`
	// BytesPerRouter is the heap of the machine, with every router tracked,
	// beside names and addresses.
	BytesPerRouter float64 `json:"bytesPerRouter"`
	// StepsPerSecond of real time: events, and routers whose instant has come,
	// the simulation's own work included.
	StepsPerSecond float64 `json:"stepsPerSecond"`
	Wall           text    `json:"wall"` // real time
}

// text is a duration that JSON holds as a Go duration string.
type text time.Duration

// MarshalText gives the duration string.
func (t text) MarshalText() ([]byte, error) { return []byte(time.Duration(t).String()), nil }

// String gives the duration string, or "never" for none.
func (t *text) String() string {
	if t == nil {
		return "never"
	}
	return time.Duration(*t).String()
}

// Course is how a simulation went.
type Course struct {
	Figures
	fleet   Fleet
	samples samples
	ended   time.Duration
}

func (r *returning) figures() Figures {
	s := r.machine.Stats()
	return Figures{
		Routers: r.f.Routers, Dials: s.Dials, MaxConcurrent: s.MaxRunning,
		MaxDialsPerSecond: r.samples.maxDialsPerSecond(), PoolFull: s.PoolFull,
		T50: r.since(0), T99: r.since(1), T100: r.since(2),
		BytesPerRouter: float64(int(r.bytes*10)) / 10,
		StepsPerSecond: float64(int(float64(r.turns) / max(r.working.Seconds(), 1e-9))),
	}
}

// since gives when a share was reached, from the return of the network.
func (r *returning) since(share int) *text {
	if r.reached[share] < 0 {
		return nil
	}
	t := text((r.reached[share] - r.f.Outage).Round(time.Millisecond))
	return &t
}

// sampleEvery is the virtual time of one sample.
const sampleEvery = 100 * time.Millisecond

// samples is what went on, by time.
type samples []sample

type sample struct {
	dials     uint32 // started
	most      uint32 // dials at once
	last      uint32 // dials at once at its end
	connected uint32 // at its end
}

// at gives the sample of an instant, which is not before the latest one.
func (s *samples) at(now time.Duration) *sample {
	i := int(now / sampleEvery)
	for i >= len(*s) {
		var next sample
		if n := len(*s); n > 0 {
			before := (*s)[n-1]
			next = sample{most: before.last, last: before.last, connected: before.connected}
		}
		*s = append(*s, next)
	}
	return &(*s)[i]
}

func (s *samples) dialed(now time.Duration) { s.at(now).dials++ }

func (s *samples) running(now time.Duration, n int) {
	p := s.at(now)
	p.last = uint32(n)
	p.most = max(p.most, p.last)
}

func (s *samples) connected(now time.Duration, n int) { s.at(now).connected = uint32(n) }

// maxDialsPerSecond gives the most dials within one second of the clock.
func (s samples) maxDialsPerSecond() int {
	most := 0
	for second := range slices.Chunk(s, int(time.Second/sampleEvery)) {
		sum := 0
		for _, p := range second {
			sum += int(p.dials)
		}
		most = max(most, sum)
	}
	return most
}
