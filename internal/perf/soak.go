// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Soak is a load of all kinds at once that leaves most of the machine alone, for
// hours if need be: what it looks for is not speed but what does not come back.
type Soak struct {
	Ways      []Dial // to a Server, each by another kind of host
	Datagrams Dial   // to a DatagramServer
}

// Soaked is what a Soak has carried.
type Soaked struct {
	Bytes       int64 `json:"bytes"`       // both ways
	Connections int64 `json:"connections"` // long and short
	Datagrams   int64 `json:"datagrams"`   // that came back
	Lost        int64 `json:"lost"`        // that did not
}

// Paces of a Soak. Long connections are made anew now and then.
const (
	soakBulk      = 32 << 10 // bytes, each way, every soakBulkEvery
	soakBulkEvery = 20 * time.Millisecond
	soakBulkLife  = 30 * time.Second
	soakEcho      = 64
	soakEchoEvery = 25 * time.Millisecond
	soakEchoLife  = 5 * time.Minute
	soakTouch     = 150 * time.Millisecond // between short connections
	soakFlow      = 500 * time.Millisecond // between flows of datagrams
	soakPerFlow   = 4
	soakPatience  = 2 * time.Second // for a datagram
)

// Run puts the load on until ctx ends. Any connection that fails, or gives back other
// bytes than it was sent, ends it.
func (s Soak) Run(ctx context.Context) (Soaked, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var carried, connections, datagrams, lost atomic.Int64
	var running sync.WaitGroup
	every := func(what string, pace time.Duration, do func() error) {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("%s: %w", what, err))
				}
				pause(ctx, pace)
			}
		})
	}
	for _, dial := range s.Ways {
		converse := func(size int, pace, life time.Duration) func() error {
			return func() error {
				connections.Add(1)
				return converse(ctx, dial, size, pace, life, &carried)
			}
		}
		every("bulk", 0, converse(soakBulk, soakBulkEvery, soakBulkLife))
		every("echo", 0, converse(soakEcho, soakEchoEvery, soakEchoLife))
		every("short connection", soakTouch, func() error {
			connections.Add(1)
			conn, err := open(ctx, dial, touch)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	every("datagrams", soakFlow, func() error {
		return exchangeDatagrams(ctx, s.Datagrams, &datagrams, &lost)
	})
	running.Wait()
	done := Soaked{carried.Load(), connections.Load(), datagrams.Load(), lost.Load()}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return done, cause
	}
	if done.Lost > 10+done.Datagrams/100 {
		return done, fmt.Errorf("%d of %d datagrams did not come back", done.Lost, done.Lost+done.Datagrams)
	}
	return done, nil
}

// converse sends size bytes, wants them back, and so on at a pace, for a life.
func converse(ctx context.Context, dial Dial, size int, pace, life time.Duration, carried *atomic.Int64) error {
	conn, err := open(ctx, dial, echo)
	if err != nil {
		return err
	}
	defer abandon(conn)
	defer interruptible(ctx, conn)()
	out, in := make([]byte, size), make([]byte, size)
	for began := time.Now(); time.Since(began) < life && pause(ctx, pace); {
		for i := range out {
			out[i] += byte(i>>8) + byte(i) | 1 // another pattern each time
		}
		if err := conn.SetDeadline(time.Now().Add(stall)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, in); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return errors.New("other bytes came back")
		}
		carried.Add(2 * int64(size))
	}
	return nil
}

// exchangeDatagrams is one flow of a few datagrams. What does not come back in time
// is lost, which is no error of a flow, but its end: it may still come.
func exchangeDatagrams(ctx context.Context, dial Dial, back, lost *atomic.Int64) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := make([]byte, 2048)
	for i := range soakPerFlow {
		out := bytes.Repeat([]byte{byte(i + 1)}, 100+400*i)
		out[0] = sendBack
		if _, err := conn.Write(out); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(soakPatience)); err != nil {
			return err
		}
		n, err := conn.Read(in)
		timeout, ok := errors.AsType[net.Error](err)
		switch {
		case ok && timeout.Timeout():
			lost.Add(1)
			return nil
		case err != nil:
			return err
		case n != len(out) || in[0] != sentBack || !bytes.Equal(in[1:n], out[1:]):
			return errors.New("another datagram came back")
		default:
			back.Add(1)
		}
	}
	return nil
}

// Record is the course of one process.
type Record struct {
	Process string
	Course  []Vitals
}

// Thirds is a mean over the second and over the last third of a course.
type Thirds struct {
	Second float64 `json:"second"`
	Last   float64 `json:"last"`
}

// thirds takes the means of what of gives.
func (r Record) thirds(of func(Vitals) float64) Thirds {
	mean := func(vs []Vitals) (m float64) {
		for _, v := range vs {
			m += of(v) / float64(len(vs))
		}
		return m
	}
	n := len(r.Course)
	return Thirds{mean(r.Course[n/3 : n-n/3]), mean(r.Course[n-n/3:])}
}

// measure is something of a process that must not grow.
type measure struct {
	name, unit string
	of         func(Vitals) float64
	slack      float64 // by which it may, beside a tenth
}

func measures() []measure {
	const mib = 1 << 20
	return []measure{
		{"heap", "MiB", func(v Vitals) float64 { return float64(v.Heap) / mib }, 1},
		{"resident", "MiB", func(v Vitals) float64 { return float64(v.Resident) / mib }, 4},
		{"goroutines", "", func(v Vitals) float64 { return float64(v.Goroutines) }, 10},
		{"descriptors", "", func(v Vitals) float64 { return float64(v.Descriptors) }, 5},
	}
}

// Verdict is how one measure of one process went.
type Verdict struct {
	Process string `json:"process"`
	Measure string `json:"measure"`
	Unit    string `json:"unit"` // empty: a number
	Thirds
	Flat bool `json:"flat"`
}

// leastCourse is how many samples a course must have to be judged.
const leastCourse = 9

// Judge compares the last third of each course with the second; the first is for
// getting warm. A course that is too short is an error.
func Judge(records []Record) ([]Verdict, error) {
	var all []Verdict
	for _, r := range records {
		if len(r.Course) < leastCourse {
			return nil, fmt.Errorf("%s: %d samples are too few to judge", r.Process, len(r.Course))
		}
		for _, m := range measures() {
			t := r.thirds(m.of)
			all = append(all, Verdict{r.Process, m.name, m.unit, t, t.Last <= 1.1*t.Second+m.slack})
		}
	}
	return all, nil
}

// Busy gives the share of one core that the process took, from the first sample to
// the last.
func (r Record) Busy() float64 {
	if len(r.Course) < 2 {
		return 0
	}
	first, last := r.Course[0], r.Course[len(r.Course)-1]
	return float64(last.CPU-first.CPU) / float64(last.At.Sub(first.At))
}
