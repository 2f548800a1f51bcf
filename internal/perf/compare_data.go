// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
)

// Names of the figures of section Data.
const (
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
	LoadedP50  = "loaded_p50" // of 64-byte round trips, beside a stream up
	LoadedP99  = "loaded_p99"
)

func (p Plan) data() []measurement {
	push := func(what string, load Load, n names) measurement {
		return measurement{Data, what, func(ctx context.Context, s Side) (found, error) { return p.push(ctx, s, load, n) }}
	}
	return []measurement{
		push(OneUp, Load{Up: 1}, names{gbits: OneUp, cpu: CPUOne}),
		push(OneDown, Load{Down: 1}, names{gbits: OneDown}),
		push(ManyUp, Load{Up: p.Streams}, names{ManyUp, LeastUp, CPUMany, MemoryMany}),
		push(ManyDown, Load{Down: p.Streams}, names{gbits: ManyDown, least: LeastDown}),
		{Data, "trip", p.trip},
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
