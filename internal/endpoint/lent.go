// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"math"
	"sync/atomic"

	"github.com/ginnel/ginnel/internal/core/flow"
)

// lent accounts for the slabs that a Conn holds beside those of its flow and its
// inbox: the one that is being read, a part of a record, what was read from a
// socket and waits for room. They are used already, so the budget hears of them even
// when it is exhausted: who is refused then is a new circuit. Its methods may be
// called from any goroutine.
type lent struct {
	slabs  flow.Slabs
	budget *flow.Budget
	n      atomic.Int64 // slabs; far below zero once settled
}

// get gives a slab.
func (l *lent) get() *flow.Slab {
	l.came()
	return l.slabs.Get()
}

// put takes one back.
func (l *lent) put(s *flow.Slab) {
	l.slabs.Put(s)
	l.gone()
}

// came notes a slab that was somebody else's.
func (l *lent) came() {
	if l.n.Add(1) > 0 {
		l.budget.Hold(flow.SlabSize)
	}
}

// gone notes one that somebody else has now.
func (l *lent) gone() {
	if l.n.Add(-1) >= 0 {
		l.budget.Give(flow.SlabSize)
	}
}

// settle gives all back to the budget, for good: the circuit is over, and what a
// program does not read of it is between it and the collector.
func (l *lent) settle() {
	if n := l.n.Swap(math.MinInt64 / 2); n > 0 {
		l.budget.Give(int(n) * flow.SlabSize)
	}
}
