// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Side is one of the networks that Compare measures.
type Side struct {
	Name string
	Dial Dial
	// Usage gives what the processes of the network use; nil: unknown. Those of
	// load and server do not belong to it.
	Usage func() (Usage, error)
}

// Plan says what Compare measures.
type Plan struct {
	Rounds   int           // each measures everything once on both sides
	Duration time.Duration // of each measurement that is bound by time
	Streams  int           // of the measurements with several streams
	Connects int           // of the measurement of connect latency, one at a time
	InFlight int           // of the measurement of connections a second
	// Tell, if set, hears of each measurement before it begins.
	Tell func(round int, side, what string)
}

// Check reports what a plan lacks.
func (p Plan) Check() error {
	switch {
	case p.Rounds < 1 || p.Rounds > 100:
		return fmt.Errorf("%d rounds: want 1 to 100", p.Rounds)
	case p.Duration <= 0 || p.Duration > MaxDuration:
		return fmt.Errorf("a duration of %s: want more than 0 and at most %s", p.Duration, MaxDuration)
	case p.Streams < 1 || p.Streams > MaxStreams:
		return fmt.Errorf("%d streams: want 1 to %d", p.Streams, MaxStreams)
	case p.InFlight < 1 || p.InFlight > MaxInFlight:
		return fmt.Errorf("%d connections in flight: want 1 to %d", p.InFlight, MaxInFlight)
	case p.Connects < 1:
		return errors.New("connect latency of no connection")
	}
	return nil
}

// Figure is one number that was measured on both sides: the medians of all
// rounds, and the median of the ratios that the rounds gave. What the machine
// does besides hits both sides of a round alike, so the ratio says most.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	Ratio float64 `json:"ratio"` // a / b
}

// Comparison is what Compare found, the figures in the order of measurement.
type Comparison struct {
	A       string   `json:"a"` // the name of the first side
	B       string   `json:"b"`
	Rounds  int      `json:"rounds"`
	Figures []Figure `json:"figures"`
}

// Figure gives the figure of that name, the zero Figure if there is none.
func (c Comparison) Figure(name string) Figure {
	i := slices.IndexFunc(c.Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}
	}
	return c.Figures[i]
}

// Names of the figures of a Comparison.
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
	ConnectP50 = "connect_p50"
	ConnectP99 = "connect_p99"
	PerSecond  = "per_second"
	CPUConnect = "cpu_connect"
	TripP50    = "trip_p50"
	TripP99    = "trip_p99"
	LoadedP50  = "loaded_p50" // of 64-byte round trips, beside a stream up
	LoadedP99  = "loaded_p99"
)

// value is one number of one measurement.
type value struct {
	name, unit string
	is         float64
}

// measurement measures one side and gives some values.
type measurement struct {
	what string
	run  func(ctx context.Context, s Side) ([]value, error)
}

// Compare measures both sides in turn, one measurement after the other, a before
// b in odd rounds and after it in even ones.
func Compare(ctx context.Context, a, b Side, plan Plan) (Comparison, error) {
	if err := plan.Check(); err != nil {
		return Comparison{}, err
	}
	for _, s := range []Side{a, b} {
		if err := warm(ctx, s); err != nil {
			return Comparison{}, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	t := tally{rounds: map[string][][2]float64{}}
	for round := 1; round <= plan.Rounds; round++ {
		for _, m := range plan.measurements() {
			for turn := range 2 {
				which := (turn + round + 1) % 2
				side := [2]Side{a, b}[which]
				if plan.Tell != nil {
					plan.Tell(round, side.Name, m.what)
				}
				values, err := m.run(ctx, side)
				if err != nil {
					return Comparison{}, fmt.Errorf("%s: %s: %w", side.Name, m.what, err)
				}
				t.add(round, which, values)
			}
		}
	}
	return Comparison{A: a.Name, B: b.Name, Rounds: plan.Rounds, Figures: t.figures()}, nil
}

// warm makes a few connections that do not count: the first ones of a network
// meet caches that are empty.
func warm(ctx context.Context, s Side) error {
	_, err := Connect(ctx, s.Dial, 1, Bound{Count: 5, Duration: stall})
	return err
}

func (p Plan) measurements() []measurement {
	return []measurement{
		{OneUp, func(ctx context.Context, s Side) ([]value, error) {
			return p.push(ctx, s, Load{Up: 1}, names{gbits: OneUp, cpu: CPUOne})
		}},
		{OneDown, func(ctx context.Context, s Side) ([]value, error) {
			return p.push(ctx, s, Load{Down: 1}, names{gbits: OneDown})
		}},
		{ManyUp, func(ctx context.Context, s Side) ([]value, error) {
			return p.push(ctx, s, Load{Up: p.Streams}, names{ManyUp, LeastUp, CPUMany, MemoryMany})
		}},
		{ManyDown, func(ctx context.Context, s Side) ([]value, error) {
			return p.push(ctx, s, Load{Down: p.Streams}, names{gbits: ManyDown, least: LeastDown})
		}},
		{"connect", p.connect},
		{PerSecond, p.rate},
		{"trip", p.trip},
		{"loaded trip", p.loaded},
	}
}

// names of what one load gives; empty: not wanted.
type names struct{ gbits, least, cpu, memory string }

func (p Plan) push(ctx context.Context, s Side, load Load, n names) ([]value, error) {
	load.Duration = p.Duration
	var t Throughput
	spent, err := s.spent(func() (err error) {
		t, err = Push(ctx, s.Dial, load)
		return err
	})
	if err != nil {
		return nil, err
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
		return values, nil
	}
	if n.cpu != "" && f.Bytes > 0 {
		values = append(values, value{n.cpu, "s/GB", spent.CPU.Seconds() / (float64(f.Bytes) / 1e9)})
	}
	if n.memory != "" {
		values = append(values, value{n.memory, "MiB", float64(spent.Memory) / (1 << 20)})
	}
	return values, nil
}

func (p Plan) connect(ctx context.Context, s Side) ([]value, error) {
	// However slow it is, a round has an end.
	c, err := Connect(ctx, s.Dial, 1, Bound{Count: p.Connects, Duration: 10 * p.Duration})
	if err != nil {
		return nil, err
	}
	return []value{{ConnectP50, "ms", c.Latency.P50}, {ConnectP99, "ms", c.Latency.P99}}, nil
}

func (p Plan) rate(ctx context.Context, s Side) ([]value, error) {
	var c Connections
	spent, err := s.spent(func() (err error) {
		c, err = Connect(ctx, s.Dial, p.InFlight, Bound{Duration: p.Duration})
		return err
	})
	if err != nil {
		return nil, err
	}
	values := []value{{PerSecond, "1/s", c.PerSecond}}
	if s.Usage != nil && c.Latency.Count > 0 {
		values = append(values, value{CPUConnect, "ms", milliseconds(spent.CPU) / float64(c.Latency.Count)})
	}
	return values, nil
}

func (p Plan) trip(ctx context.Context, s Side) ([]value, error) {
	d, err := Echo(ctx, s.Dial, 1, Bound{Duration: p.Duration})
	if err != nil {
		return nil, err
	}
	return []value{{TripP50, "ms", d.P50}, {TripP99, "ms", d.P99}}, nil
}

// loaded measures round trips while another connection takes all that it can get.
func (p Plan) loaded(ctx context.Context, s Side) ([]value, error) {
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
		return nil, err
	}
	return []value{{LoadedP50, "ms", d.P50}, {LoadedP99, "ms", d.P99}}, nil
}

// spent gives the CPU time that the side's processes use while fn runs, and the
// memory that they have behind it.
func (s Side) spent(fn func() error) (Usage, error) {
	if s.Usage == nil {
		return Usage{}, fn()
	}
	before, err := s.Usage()
	if err != nil {
		return Usage{}, err
	}
	if err := fn(); err != nil {
		return Usage{}, err
	}
	after, err := s.Usage()
	after.CPU -= before.CPU
	return after, err
}

// tally collects the values of all rounds.
type tally struct {
	order  []value
	rounds map[string][][2]float64 // by name, of each round both sides
}

func (t *tally) add(round, side int, values []value) {
	for _, v := range values {
		all := t.rounds[v.name]
		if all == nil {
			t.order = append(t.order, v)
		}
		for len(all) < round {
			all = append(all, [2]float64{})
		}
		all[round-1][side] = v.is
		t.rounds[v.name] = all
	}
}

func (t *tally) figures() []Figure {
	var figures []Figure
	for _, v := range t.order {
		var a, b, ratios []float64
		for _, both := range t.rounds[v.name] {
			a, b = append(a, both[0]), append(b, both[1])
			if both[1] != 0 {
				ratios = append(ratios, both[0]/both[1])
			}
		}
		figures = append(figures, Figure{Name: v.name, Unit: v.unit, A: median(a), B: median(b), Ratio: median(ratios)})
	}
	return figures
}
