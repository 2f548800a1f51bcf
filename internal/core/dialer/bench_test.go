// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// crowd is a machine that tracks nobody yet, and n keys.
func crowd(n int) (*Dialer, []Key) {
	cfg := testConfig()
	cfg.ScanSpread = time.Microsecond
	src := fixedSource{"a", "b"}
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key(fmt.Sprintf("router%07d", i))
	}
	return New(cfg, rand.New(rand.NewPCG(1, 2)), src), keys
}

// fixedSource knows the same addresses of everybody.
type fixedSource []ginnel.Address

func (s fixedSource) Addresses(Key) []ginnel.Address { return s }

// BenchmarkSteps dials and fails with a million routers tracked: each round is
// a Tick that starts a dial and the DialDone that fails it.
func BenchmarkSteps(b *testing.B) {
	d, keys := crowd(1_000_000)
	before := heap()
	d.Step(epoch, Tick{})
	d.Step(epoch, ScanPage{Scan: 1, Keys: keys})
	d.Step(epoch, Tick{})
	perRouter := float64(heap()-before) / float64(len(keys))
	now := epoch
	steps := 0
	b.ReportAllocs()
	for b.Loop() {
		if at := d.Deadline(); at.After(now) {
			now = at
		}
		steps++
		dials := d.Step(now, Tick{})
		var answers []DialDone
		for _, a := range dials {
			if dial, ok := a.(Dial); ok {
				answers = append(answers, DialDone{Key: dial.Key, Attempt: dial.Attempt, Err: errRefused})
			}
		}
		for _, answer := range answers {
			steps++
			d.Step(now, answer)
		}
	}
	b.ReportMetric(float64(steps)/b.Elapsed().Seconds(), "steps/s")
	b.ReportMetric(perRouter, "B/router")
}

// BenchmarkLost is a Step for each router of a million that loses its connection.
func BenchmarkLost(b *testing.B) {
	d, keys := crowd(1_000_000)
	d.Step(epoch, Tick{})
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		key := keys[i%len(keys)]
		d.Step(epoch, ConnUp{Key: key, Conn: uint64(i + 1)})
		d.Step(epoch, ConnLost{Key: key, Conn: uint64(i + 1)})
		i++
	}
	b.ReportMetric(2*float64(i)/b.Elapsed().Seconds(), "steps/s")
}

// BenchmarkStart is the scan of a store of a million routers: what a page of 256
// costs the loop, and a router of it.
func BenchmarkStart(b *testing.B) {
	const page = 256
	d, keys := crowd(1_000_000)
	d.Step(epoch, Tick{})
	i, pages := 0, 0
	var slowest time.Duration
	for b.Loop() {
		if i+page > len(keys) { // all are tracked: begin anew
			b.StopTimer()
			d, keys = crowd(len(keys))
			d.Step(epoch, Tick{})
			i = 0
			b.StartTimer()
		}
		began := time.Now()
		d.Step(epoch, ScanPage{Scan: 1, Keys: keys[i : i+page]})
		slowest = max(slowest, time.Since(began))
		i += page
		pages++
	}
	b.ReportMetric(float64(pages*page)/b.Elapsed().Seconds(), "routers/s")
	b.ReportMetric(float64(slowest.Microseconds()), "slowest-us")
}

// BenchmarkClockJump makes a million waiting routers due.
func BenchmarkClockJump(b *testing.B) {
	d, keys := crowd(1_000_000)
	d.Step(epoch, Tick{})
	d.Step(epoch, ScanPage{Scan: 1, Keys: keys})
	for b.Loop() {
		d.Step(epoch, ClockJump{})
	}
}

// BenchmarkDeleted takes a million routers away one by one.
func BenchmarkDeleted(b *testing.B) {
	d, keys := crowd(1_000_000)
	d.Step(epoch, Tick{})
	d.Step(epoch, ScanPage{Scan: 1, Keys: keys})
	i := 0
	for b.Loop() {
		d.Step(epoch, Deleted{Key: keys[i%len(keys)]})
		i++
	}
	b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "steps/s")
}

// TestTickIsBounded: however many are due, one Tick holds the loop for tickBatch
// of them, and the next deadline is at once.
func TestTickIsBounded(t *testing.T) {
	d, keys := crowd(10_000)
	for _, key := range keys {
		d.Step(epoch, Updated{Key: key})
	}
	for left := len(keys); left > 0; left -= tickBatch {
		if d.Deadline().After(epoch) {
			t.Fatalf("%d are due, and the deadline is %s", left, d.Deadline())
		}
		moved := 0
		for _, a := range d.Step(epoch, Tick{}) {
			if _, ok := a.(Moved); ok {
				moved++
			}
		}
		if want := min(left, tickBatch); moved != want {
			t.Fatalf("a tick moves %d, want %d", moved, want)
		}
	}
}

// TestBytesPerRouter holds routers under 250 bytes each, beside their names and
// addresses.
func TestBytesPerRouter(t *testing.T) {
	const n = 200_000
	d, keys := crowd(n)
	before := heap()
	d.Step(epoch, Tick{})
	d.Step(epoch, ScanPage{Scan: 1, Keys: keys})
	d.Step(epoch, Tick{})
	got := (heap() - before) / n
	t.Logf("%d bytes per router", got)
	if got >= 250 {
		t.Errorf("%d bytes per router, want less than 250", got)
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(keys)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
