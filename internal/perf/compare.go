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

// Side is one of the networks that Compare measures. What it lacks is not measured
// on it.
type Side struct {
	Name string
	Dial Dial
	// Full is a way through the same network that resumes no TLS sessions.
	Full *Side
	// Direct is a Dial without a proxy of the network in between.
	Direct Dial
	// Far is a way over a link of FarTrip.
	Far Dial
	// Longer is a way that differs from Dial by one hop more.
	Longer Dial
	// Few asks for measurements with two and with four streams as well.
	Few bool
	// Usage gives what the processes of the network use. Those of load and server
	// do not belong to it.
	Usage func() (Usage, error)
	// Handshakes gives how many end-to-end TLS handshakes Dial has made so far:
	// proof that it resumes, or does not.
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
	// Alone and Faults are not of Compare: what is known of the first side alone is
	// added to what it found.
	Alone  = "alone"
	Faults = "faults"
)

// Names of the figures of sections Alone and Faults.
const (
	MemoryRouter     = "memory_router"     // idle
	MemoryController = "memory_controller" // idle
	MemoryClient     = "memory_client"     // of a circuit, at the router of its client
	MemoryRow        = "memory_row"        // at one that it passes
	MemoryEnd        = "memory_end"        // at one where it ends
	AfterKill        = "after_kill"        // of a router, until no path leads over it and it counts as gone
	AfterSilentLink  = "after_silent_link" // of a router that was halted, until no path leads over it
	AfterSilentCtrl  = "after_silent_ctrl" // until the router counts as gone
	DemoStart        = "demo_start"        // until its first byte by name
)

// The link of section Far.
const (
	FarTrip = 50 * time.Millisecond
	FarRate = 25_000_000 // bytes a second
)

// Sections gives all of them, in the order in which they are shown.
func Sections() []string { return []string{Data, Dialing, Far, Alone, Faults} }

// Plan says what Compare measures.
type Plan struct {
	Rounds   int           // each measures everything once on all sides
	Duration time.Duration // of each measurement that is bound by time
	Streams  int           // of the measurements with many streams
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

// Figure is one number that was measured on several sides: the medians of all
// rounds, and the medians of the ratios that the rounds gave. What the machine
// does besides hits all sides of a round alike, so the ratios say most.
type Figure struct {
	Section string `json:"section"`
	Name    string `json:"name"`
	Unit    string `json:"unit"`
	// Values are by side; a side that was not measured so has none.
	Values map[string]float64 `json:"values"`
	// Ratios are of the first side's value to that of each other side.
	Ratios map[string]float64 `json:"ratios,omitempty"`
}

// Failure is connections that failed in a measurement, which goes on with the
// others, or is made again where it cannot. The first side must be measured in the
// end; where another cannot, that figure is left out.
type Failure struct {
	Side    string `json:"side"`
	Measure string `json:"measure"`
	Count   int    `json:"count"` // in all rounds
	First   string `json:"first"` // the first error
}

// Comparison is what Compare found, the figures in the order of measurement.
type Comparison struct {
	Sides   []string `json:"sides"` // names
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

// Add adds a figure of the first side alone, which Compare does not measure.
func (c *Comparison) Add(section, name, unit string, v float64) {
	c.Figures = append(c.Figures, Figure{Section: section, Name: name, Unit: unit, Values: map[string]float64{c.Sides[0]: v}})
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

// Compare measures all sides in turn, one measurement after the other. Each side
// is the first to be measured in one round out of as many as there are sides. The
// first side is what the others are compared with.
func Compare(ctx context.Context, sides []Side, plan Plan) (Comparison, error) {
	if err := plan.Check(); err != nil {
		return Comparison{}, err
	}
	c := Comparison{Rounds: plan.Rounds}
	for _, s := range sides {
		if slices.Contains(c.Sides, s.Name) {
			return Comparison{}, fmt.Errorf("two sides are named %q", s.Name)
		}
		if err := warm(ctx, s); err != nil {
			return Comparison{}, fmt.Errorf("%s: %w", s.Name, err)
		}
		c.Sides = append(c.Sides, s.Name)
	}
	t := tally{rounds: map[string][]map[string]float64{}, failures: []Failure{}}
	for round := range plan.Rounds {
		for _, m := range plan.measurements() {
			for turn := range sides {
				which := (turn + round) % len(sides)
				side := sides[which]
				if plan.Tell != nil {
					plan.Tell(round+1, side.Name, m.what)
				}
				err := t.measure(ctx, m, round, side)
				if err != nil && (which == 0 || ctx.Err() != nil) {
					return Comparison{}, fmt.Errorf("%s: %s: %w", side.Name, m.what, err)
				}
			}
		}
	}
	c.Figures, c.Failures = t.figures(c.Sides), t.failures
	return c, nil
}

// warm makes a few connections that do not count: the first ones of a network
// meet caches that are empty.
func warm(ctx context.Context, s Side) error {
	ways := []Dial{s.Dial, s.Direct, s.Longer}
	if s.Full != nil {
		ways = append(ways, s.Full.Dial)
	}
	for _, dial := range ways {
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
	order    []Figure                        // without numbers
	rounds   map[string][]map[string]float64 // by name, of each round by side
	failures []Failure
}

// measure makes one measurement of a side, and makes it again when it cannot go on.
// Every failure is noted, that of the last try too.
func (t *tally) measure(ctx context.Context, m measurement, round int, s Side) error {
	for try := 1; ; try++ {
		f, err := m.run(ctx, s)
		if err == nil {
			t.failed(s.Name, m.what, f.failed, f.first)
			t.add(m.section, round, s.Name, f.values)
			return nil
		}
		t.failed(s.Name, m.what, 1, err.Error())
		if ctx.Err() != nil || try == tries {
			return err
		}
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

func (t *tally) add(section string, round int, side string, values []value) {
	for _, v := range values {
		all := t.rounds[v.name]
		if all == nil {
			t.order = append(t.order, Figure{Section: section, Name: v.name, Unit: v.unit})
		}
		for len(all) <= round {
			all = append(all, map[string]float64{})
		}
		all[round][side] = v.is
		t.rounds[v.name] = all
	}
}

// figures takes the rounds together, for sides of which the first is compared with
// each other.
func (t *tally) figures(sides []string) []Figure {
	var figures []Figure
	for _, f := range t.order {
		f.Values, f.Ratios = map[string]float64{}, map[string]float64{}
		for _, side := range sides {
			var values, ratios []float64
			for _, round := range t.rounds[f.Name] {
				own, measured := round[side]
				if !measured {
					continue
				}
				values = append(values, own)
				if first, also := round[sides[0]]; also && own != 0 {
					ratios = append(ratios, first/own)
				}
			}
			if len(values) > 0 {
				f.Values[side] = median(values)
			}
			if len(ratios) > 0 && side != sides[0] {
				f.Ratios[side] = median(ratios)
			}
		}
		figures = append(figures, f)
	}
	return figures
}
