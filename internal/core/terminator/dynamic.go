// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"math"
	"time"

	"github.com/ginnel/ginnel"
)

// What the dynamic cost is made of.
const (
	// CircuitCost is added for each open circuit and each set-up in flight.
	CircuitCost = 2 * ginnel.Unit
	// FailureCost is added by a failed connection at or behind the egress.
	FailureCost = 20 * ginnel.Unit
	// SuccessRelief is taken off the failure cost by a connection that succeeded.
	SuccessRelief = 2 * ginnel.Unit
	// FailureMemory is how long after the last failure its cost is forgotten.
	FailureMemory = 10 * time.Minute
)

// Failures is the failure cost of a terminator. It goes down in a straight line
// and is 0 when FailureMemory has passed since the last failure. The zero value
// has seen none. One goroutine owns it.
type Failures struct {
	cost ginnel.Cost // at the instant at
	at   time.Time
	end  time.Time // when the cost is 0 again; zero while there was no failure
}

// Failed counts a connection that failed.
func (f *Failures) Failed(now time.Time) {
	*f = Failures{cost: f.Cost(now).Add(FailureCost), at: now, end: now.Add(FailureMemory)}
}

// Succeeded counts a connection that was made.
func (f *Failures) Succeeded(now time.Time) {
	f.cost, f.at = max(0, f.Cost(now)-SuccessRelief), now
}

// Cost gives the failure cost.
func (f *Failures) Cost(now time.Time) ginnel.Cost {
	left, span := f.end.Sub(now), f.end.Sub(f.at)
	switch {
	case left <= 0:
		return 0
	case left >= span:
		return f.cost // also when the clock went back
	}
	return ginnel.Cost(math.Round(float64(f.cost) * (float64(left) / float64(span))))
}

// Load is the dynamic part of a terminator as its egress router reports it.
type Load struct {
	Circuits    int         // open
	FailureCost ginnel.Cost // now
	// FailureLeft is the time in which the failure cost goes to 0: a duration,
	// because clocks differ.
	FailureLeft time.Duration
}

// Dynamic is the dynamic cost of one terminator where it lives, at the egress
// router; at a controller it is what the last Load said. The zero value costs
// nothing. One goroutine owns it.
type Dynamic struct {
	circuits int
	failures Failures
}

// Opened counts a connection that was made and its circuit as open.
func (d *Dynamic) Opened(now time.Time) {
	d.circuits++
	d.failures.Succeeded(now)
}

// Closed counts the end of a circuit that was Opened.
func (d *Dynamic) Closed() { d.circuits = max(0, d.circuits-1) }

// Failed counts a connection that could not be made.
func (d *Dynamic) Failed(now time.Time) { d.failures.Failed(now) }

// Load gives what is to be reported.
func (d *Dynamic) Load(now time.Time) Load {
	cost := d.failures.Cost(now)
	load := Load{Circuits: d.circuits, FailureCost: cost}
	if cost > 0 {
		load.FailureLeft = d.failures.end.Sub(now)
	}
	return load
}

// Reported gives the dynamic cost that a report received now stands for. What a
// report cannot mean (negative numbers, a failure that lasts longer than
// FailureMemory) is cut to what it can.
func Reported(now time.Time, l Load) Dynamic {
	left := min(max(0, l.FailureLeft), FailureMemory)
	return Dynamic{
		circuits: max(0, l.Circuits),
		failures: Failures{cost: min(max(0, l.FailureCost), ginnel.MaxCost/2), at: now, end: now.Add(left)},
	}
}

// Circuits gives the number of open circuits.
func (d *Dynamic) Circuits() int { return d.circuits }

// Cost gives the dynamic cost: open circuits and failures.
func (d *Dynamic) Cost(now time.Time) ginnel.Cost {
	return circuitsCost(d.circuits).Add(d.failures.Cost(now))
}

func circuitsCost(n int) ginnel.Cost { return ginnel.Units(int64(n) * int64(CircuitCost/ginnel.Unit)) }
