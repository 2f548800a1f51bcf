// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Side is one of the networks that Compare measures.
type Side struct {
	Name string
	Dial Dial
	// Full is a way through the same network that resumes no TLS sessions; nil: Dial
	// is one.
	Full *Side
	// Direct is a Dial without a proxy of the network in between; nil: there is none.
	Direct Dial
	// Far is a way over a link of FarTrip; nil: there is none.
	Far Dial
	// Usage gives what the processes of the network use; nil: unknown. Those of
	// load and server do not belong to it.
	Usage func() (Usage, error)
	// Handshakes gives how many end-to-end TLS handshakes Dial has made so far:
	// proof that it resumes, or does not. Nil: unknown.
	Handshakes func(context.Context) (Handshakes, error)
}

// Handshakes are counts of TLS handshakes.
type Handshakes struct{ Full, Resumed float64 }

// Sections of a Comparison.
const (
	// Data is about connections that are there: throughput and round trips.
	Data = "data"
	// Dialing is about new ones.
	Dialing = "dial"
	// Far is about throughput over a link with a long round trip.
	Far = "far"
)

// The link of section Far.
const (
	FarTrip = 50 * time.Millisecond
	FarRate = 25_000_000 // bytes a second
)

// Sections gives all of them, in the order of measurement.
func Sections() []string { return []string{Data, Dialing, Far} }

// Plan says what Compare measures.
type Plan struct {
	Rounds   int           // each measures everything once on both sides
	Duration time.Duration // of each measurement that is bound by time
	Streams  int           // of the measurements with several streams
	Connects int           // of the measurement of connect latency, one at a time
	InFlight int           // of the measurement of connections a second
	Sections []string      // what is measured; nil: all Sections
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
	for _, s := range p.Sections {
		if !slices.Contains(Sections(), s) {
			return fmt.Errorf("section %q: want some of %s", s, strings.Join(Sections(), ", "))
		}
	}
	return nil
}

// Figure is one number that was measured on both sides: the medians of all
// rounds, and the median of the ratios that the rounds gave. What the machine
// does besides hits both sides of a round alike, so the ratio says most.
type Figure struct {
	Section string  `json:"section"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	A       float64 `json:"a"`
	B       float64 `json:"b"`
	Ratio   float64 `json:"ratio"` // a / b; 0: there is no b
}

// Failure is connections that failed in a measurement, which goes on with the
// others, or is made again where it cannot.
type Failure struct {
	Side    string `json:"side"`
	Measure string `json:"measure"`
	Count   int    `json:"count"` // in all rounds
	First   string `json:"first"` // the first error
}

// Comparison is what Compare found, the figures in the order of measurement.
type Comparison struct {
	A       string   `json:"a"` // the name of the first side
	B       string   `json:"b"`
	Rounds  int      `json:"rounds"`
	Figures []Figure `json:"figures"`
	// Failures are none on a machine that has time for what it is asked.
	Failures []Failure `json:"failures"`
}

// Figure gives the figure of that name, the zero Figure if there is none.
func (c Comparison) Figure(name string) Figure {
	i := slices.IndexFunc(c.Figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return Figure{}
	}
	return c.Figures[i]
}

// measurement measures one side and gives some values.
type measurement struct {
	section, what string
	run           func(ctx context.Context, s Side) (found, error)
}

// found is what one measurement found.
type found struct {
	values []value
	failed int    // connections
	first  string // why the first of them did
}

// value is one number of one measurement.
type value struct {
	name, unit string
	is         float64
}

// tries is how often a measurement is begun that cannot go on without a connection
// that failed.
const tries = 3

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
	t := tally{rounds: map[string][][2]float64{}, failures: []Failure{}}
	for round := 1; round <= plan.Rounds; round++ {
		for _, m := range plan.measurements() {
			for turn := range 2 {
				which := (turn + round + 1) % 2
				side := [2]Side{a, b}[which]
				if plan.Tell != nil {
					plan.Tell(round, side.Name, m.what)
				}
				if err := t.measure(ctx, m, round, which, side); err != nil {
					return Comparison{}, fmt.Errorf("%s: %s: %w", side.Name, m.what, err)
				}
			}
		}
	}
	return Comparison{A: a.Name, B: b.Name, Rounds: plan.Rounds, Figures: t.figures(), Failures: t.failures}, nil
}

// warm makes a few connections that do not count: the first ones of a network
// meet caches that are empty.
func warm(ctx context.Context, s Side) error {
	for _, dial := range []Dial{s.Dial, s.full().Dial, s.Direct} {
		if dial == nil {
			continue
		}
		if _, err := Connect(ctx, dial, 1, Bound{Count: 5, Duration: stall}); err != nil {
			return err
		}
	}
	return nil
}

func (p Plan) measurements() []measurement {
	all := slices.Concat(p.data(), p.dialing(), p.far())
	return slices.DeleteFunc(all, func(m measurement) bool {
		return p.Sections != nil && !slices.Contains(p.Sections, m.section)
	})
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
	order    []Figure                // without numbers
	rounds   map[string][][2]float64 // by name, of each round both sides
	failures []Failure
}

// measure makes one measurement of a side, and makes it again when it cannot go on.
func (t *tally) measure(ctx context.Context, m measurement, round, which int, s Side) error {
	for try := 1; ; try++ {
		f, err := m.run(ctx, s)
		if err == nil {
			t.failed(s.Name, m.what, f.failed, f.first)
			t.add(m.section, round, which, f.values)
			return nil
		}
		if ctx.Err() != nil || try == tries {
			return err
		}
		t.failed(s.Name, m.what, 1, err.Error())
	}
}

func (t *tally) failed(side, measure string, count int, first string) {
	if count == 0 {
		return
	}
	i := slices.IndexFunc(t.failures, func(f Failure) bool { return f.Side == side && f.Measure == measure })
	if i < 0 {
		t.failures = append(t.failures, Failure{side, measure, count, first})
		return
	}
	t.failures[i].Count += count
}

func (t *tally) add(section string, round, side int, values []value) {
	for _, v := range values {
		all := t.rounds[v.name]
		if all == nil {
			t.order = append(t.order, Figure{Section: section, Name: v.name, Unit: v.unit})
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
	for _, f := range t.order {
		var a, b, ratios []float64
		for _, both := range t.rounds[f.Name] {
			a, b = append(a, both[0]), append(b, both[1])
			if both[1] != 0 {
				ratios = append(ratios, both[0]/both[1])
			}
		}
		f.A, f.B, f.Ratio = median(a), median(b), median(ratios)
		figures = append(figures, f)
	}
	return figures
}
