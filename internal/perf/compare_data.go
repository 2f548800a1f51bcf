// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"time"
)

// Names of the figures of section Data.
const (
	// Those with n are of Plan.Streams streams.
	OneUp      = "1_up"
	OneDown    = "1_down"
	ManyUp     = "n_up"
	ManyDown   = "n_down"
	LeastUp    = "n_up_least" // the slowest stream's part of its fair share
	LeastDown  = "n_down_least"
	CPUOne     = "cpu_1_up"
	CPUMany    = "cpu_n_up"
	MemoryMany = "memory_n_up" // of all processes, just after the load
	TripP50    = "trip_p50"
	TripP99    = "trip_p99"
	Hop        = "hop"        // the latency that one hop more adds: half of what it adds to a round trip's median
	LoadedP50  = "loaded_p50" // of 64-byte round trips, beside a stream up
	LoadedP99  = "loaded_p99"
)

// Names of the figures of section Data that a Side with Few has.
const (
	TwoUp         = "2_up"
	TwoDown       = "2_down"
	FourUp        = "4_up"
	FourDown      = "4_down"
	LeastTwoUp    = "2_up_least"
	LeastTwoDown  = "2_down_least"
	LeastFourUp   = "4_up_least"
	LeastFourDown = "4_down_least"
)

func (p Plan) data() []measurement {
	push := func(what string, load Load, n names) measurement {
		return measurement{Data, what, func(ctx context.Context, s Side) (found, error) { return p.push(ctx, s, load, n) }}
	}
	few := func(what string, load Load, least string) measurement {
		return measurement{Data, what, func(ctx context.Context, s Side) (found, error) {
			if !s.Few {
				return found{}, nil
			}
			return p.push(ctx, s, load, names{gbits: what, least: least})
		}}
	}
	return []measurement{
		push(OneUp, Load{Up: 1}, names{gbits: OneUp, cpu: CPUOne}),
		push(OneDown, Load{Down: 1}, names{gbits: OneDown}),
		few(TwoUp, Load{Up: 2}, LeastTwoUp),
		few(TwoDown, Load{Down: 2}, LeastTwoDown),
		few(FourUp, Load{Up: 4}, LeastFourUp),
		few(FourDown, Load{Down: 4}, LeastFourDown),
		push(ManyUp, Load{Up: p.Streams}, names{ManyUp, LeastUp, CPUMany, MemoryMany}),
		push(ManyDown, Load{Down: p.Streams}, names{gbits: ManyDown, least: LeastDown}),
		{Data, "trip", p.trip},
		{Data, Hop, p.hop},
		{Data, "loaded trip", p.loaded},
	}
}

// names of what one load gives; empty: not wanted.
type names struct{ gbits, least, cpu, memory string }

func (p Plan) push(ctx context.Context, s Side, load Load, n names) (found, error) {
	load.Duration = p.Duration
	var t Throughput
	spent, err := s.spent(func() (err error) {
		t, err = Push(ctx, s.Dial, load)
		return err
	})
	if err != nil {
		return found{}, err
	}
	f := t.Up
	if f == nil {
		f = t.Down
	}
	values := []value{{n.gbits, "Gbit/s", f.Gbits}}
	if n.least != "" {
		values = append(values, value{n.least, "of fair", f.Least})
	}
	if s.Usage == nil {
		return found{values: values}, nil
	}
	if n.cpu != "" && f.Bytes > 0 {
		values = append(values, value{n.cpu, "s/GB", spent.CPU.Seconds() / (float64(f.Bytes) / 1e9)})
	}
	if n.memory != "" {
		values = append(values, value{n.memory, "MiB", float64(spent.Memory) / (1 << 20)})
	}
	return found{values: values}, nil
}

func (p Plan) trip(ctx context.Context, s Side) (found, error) {
	d, err := Echo(ctx, s.Dial, 1, Bound{Duration: p.Duration})
	if err != nil {
		return found{}, err
	}
	return found{values: []value{{TripP50, "ms", d.P50}, {TripP99, "ms", d.P99}}}, nil
}

// hop measures round trips over the way of the side and over its longer one, a few
// of each in turn, and gives half the difference of the medians, in microseconds: a
// round trip passes the hop twice.
func (p Plan) hop(ctx context.Context, s Side) (found, error) {
	if s.Longer == nil {
		return found{}, nil
	}
	const turns = 8
	short, long, err := echoBoth(ctx, s.Dial, s.Longer, turns, p.Duration/turns)
	if err != nil {
		return found{}, err
	}
	return found{values: []value{{Hop, "us", (long.P50 - short.P50) / 2 * 1000}}}, nil
}

// echoBoth measures one-byte round trips over two ways, in turns of a duration for
// both together.
func echoBoth(ctx context.Context, a, b Dial, turns int, each time.Duration) (Distribution, Distribution, error) {
	var trips [2][]time.Duration
	for range turns {
		for i, dial := range []Dial{a, b} {
			samples, err := echoes(ctx, dial, 1, Bound{Duration: each / 2})
			if err != nil {
				return Distribution{}, Distribution{}, err
			}
			trips[i] = append(trips[i], samples...)
		}
	}
	return distribution(trips[0]), distribution(trips[1]), nil
}

// loaded measures round trips while another connection takes all that it can get.
func (p Plan) loaded(ctx context.Context, s Side) (found, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pushed := make(chan error, 1)
	go func() {
		_, err := Push(ctx, s.Dial, Load{Up: 1, Duration: p.Duration})
		pushed <- err
	}()
	const size = 64
	d, err := Echo(ctx, s.Dial, size, Bound{Duration: p.Duration})
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-pushed); err != nil {
		return found{}, err
	}
	return found{values: []value{{LoadedP50, "ms", d.P50}, {LoadedP99, "ms", d.P99}}}, nil
}
