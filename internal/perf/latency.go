// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bound ends a measurement: after Count, after Duration, whatever comes first.
// 0 is no bound, but one must be given.
type Bound struct {
	Count    int
	Duration time.Duration
}

// maxSamples ends every measurement, so that its memory has an end too.
const maxSamples = 1 << 20

// MaxDuration bounds what is measured in one go; a Server bounds it too.
const MaxDuration = maxLife / 2

// count gives the number of samples that may be taken at most.
func (b Bound) count() (int, error) {
	switch {
	case b.Count < 0 || b.Duration < 0 || b == (Bound{}):
		return 0, fmt.Errorf("a measurement needs an end: %d samples, %s", b.Count, b.Duration)
	case b.Count == 0 || b.Count > maxSamples:
		return maxSamples, nil
	}
	return b.Count, nil
}

// until gives when to stop.
func (b Bound) until(start time.Time) time.Time {
	if b.Duration == 0 {
		return start.Add(maxLife)
	}
	return start.Add(b.Duration)
}

// MaxEcho bounds what Echo sends at a time.
const MaxEcho = chunk

// Echo sends size bytes over one connection, waits until they are back, and so on.
func Echo(ctx context.Context, dial Dial, size int, bound Bound) (Distribution, error) {
	samples, err := echoes(ctx, dial, size, bound)
	return distribution(samples), err
}

func echoes(ctx context.Context, dial Dial, size int, bound Bound) ([]time.Duration, error) {
	most, err := bound.count()
	if err != nil {
		return nil, err
	}
	if size < 1 || size > MaxEcho {
		return nil, fmt.Errorf("echo of %d bytes: want 1 to %d", size, MaxEcho)
	}
	conn, err := open(ctx, dial, echo)
	if err != nil {
		return nil, err
	}
	defer abandon(conn)
	defer interruptible(ctx, conn)()
	start := time.Now()
	end := bound.until(start)
	if err := conn.SetDeadline(end.Add(stall)); err != nil {
		return nil, err
	}
	samples, err := roundTrips(conn, size, most, start, end)
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return samples, err
}

func roundTrips(conn net.Conn, size, most int, start, end time.Time) ([]time.Duration, error) {
	var samples []time.Duration
	out, in := make([]byte, size), make([]byte, size)
	for begun := start; len(samples) < most && begun.Before(end); {
		out[0]++ // a byte of an earlier round trip would show
		if _, err := conn.Write(out); err != nil {
			return samples, fmt.Errorf("echo: %w", err)
		}
		if _, err := io.ReadFull(conn, in); err != nil {
			return samples, fmt.Errorf("echo: %w", err)
		}
		if in[0] != out[0] {
			return samples, errors.New("echo: other bytes came back")
		}
		now := time.Now()
		samples = append(samples, now.Sub(begun))
		begun = now
	}
	return samples, nil
}

// Connections is how new connections went, each from the dial to the first byte
// of the server.
type Connections struct {
	InFlight  int          `json:"in_flight"`
	Failed    int          `json:"failed"`
	Error     string       `json:"error,omitempty"` // of the first that failed
	Seconds   float64      `json:"seconds"`
	PerSecond float64      `json:"per_second"` // those that succeeded
	Latency   Distribution `json:"latency"`    // of those that succeeded
}

// MaxInFlight bounds how many connections Connect makes at the same time.
const MaxInFlight = 512

// Connect makes connections, inFlight at a time, and ends each with its first
// byte. Those that fail are counted; if all do, the first error comes back.
func Connect(ctx context.Context, dial Dial, inFlight int, bound Bound) (Connections, error) {
	most, err := bound.count()
	if err != nil {
		return Connections{}, err
	}
	if inFlight < 1 || inFlight > MaxInFlight {
		return Connections{}, fmt.Errorf("%d connections at the same time: want 1 to %d", inFlight, MaxInFlight)
	}
	start := time.Now()
	w := &connecting{dial: dial, most: most, end: bound.until(start)}
	var workers sync.WaitGroup
	for range min(inFlight, most) {
		workers.Go(func() { w.work(ctx) })
	}
	workers.Wait()
	c := w.result(inFlight, time.Since(start))
	if c.Latency.Count == 0 {
		return c, errors.Join(ctx.Err(), w.first)
	}
	return c, ctx.Err()
}

// connecting is shared by the workers of one Connect.
type connecting struct {
	dial Dial
	most int
	end  time.Time

	mu      sync.Mutex
	started int
	failed  int
	first   error // of those that failed
	samples []time.Duration
}

func (w *connecting) work(ctx context.Context) {
	for w.next(ctx) {
		begun := time.Now()
		conn, err := open(ctx, w.dial, touch)
		took := time.Since(begun)
		if err == nil {
			_ = conn.Close()
		}
		w.took(took, err)
		if err != nil && !pause(ctx, time.Millisecond) { // who refuses at once would be flooded
			return
		}
	}
}

func (w *connecting) next(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started >= w.most || ctx.Err() != nil || !time.Now().Before(w.end) {
		return false
	}
	w.started++
	return true
}

func (w *connecting) took(d time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.samples = append(w.samples, d)
		return
	}
	w.failed++
	if w.first == nil {
		w.first = err
	}
}

func (w *connecting) result(inFlight int, took time.Duration) Connections {
	c := Connections{InFlight: inFlight, Failed: w.failed, Seconds: took.Seconds(), Latency: distribution(w.samples)}
	if w.first != nil {
		c.Error = w.first.Error()
	}
	if c.Seconds > 0 {
		c.PerSecond = float64(c.Latency.Count) / c.Seconds
	}
	return c
}
