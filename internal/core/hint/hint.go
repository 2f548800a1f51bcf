// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package hint decides which running circuits should take a better path, and
// when their clients are told.
//
// A client is told when the path that its circuit has costs more than the best
// one by more than a fifth and by more than a hop ([path.WorthMoving]): noise
// moves nobody. What many should do they do not do at once, for two reasons: a
// resume costs both ends something, and costs follow load late, since a
// round-trip time is smoothed and published with delay. So:
//
//   - a Planner gives at most [Batch] hints each [Every], those with most to
//     gain first, then by circuit id, so that several controllers choose alike;
//   - within a [Round], which is longer than costs need to follow load, it gives
//     hints to at most a quarter of those who would gain at its beginning, or to
//     one batch where that is more;
//   - after a hint a circuit rests, whether or not its client has moved: for
//     [Rest], after the next one twice as long, at most for [LongestRest]. Who
//     was told nothing for twice that begins anew. So no circuit goes back and
//     forth, even between paths that get dear by being taken.
//
// The package finds no paths and sends nothing. A [Planner] belongs to one
// goroutine.
package hint

import (
	"cmp"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

// The rule in numbers.
const (
	Every       = 250 * time.Millisecond
	Batch       = 64
	Round       = 10 * time.Second
	Rest        = time.Minute
	LongestRest = 64 * time.Minute

	forget = 2 * LongestRest
	share  = 4 // of those who would gain, one in so many within a Round
)

// Circuit is the client's end of a circuit, as the router to which the client is
// connected reports it.
type Circuit struct {
	ID         ginnel.CircuitID
	Generation uint32
}

// Way is a path in use, from the router to which its clients are connected.
type Way struct {
	Path path.Path // without its cost
	// Circuits gives those on it. It is asked only where the way is worth leaving.
	Circuits func() []Circuit
}

// Hint says whose client is to be told of a better path, and by how much it is.
type Hint struct {
	Circuit    ginnel.CircuitID
	Generation uint32
	Ingress    ginnel.RouterID
	Gain       ginnel.Cost
}

// Planner remembers who was told. The zero value has told nobody.
type Planner struct {
	told  map[ginnel.CircuitID]told
	last  time.Time // of the last batch
	round time.Time // when the current round began
	left  int       // hints of it
}

// told is the past of a circuit that is there.
type told struct {
	at    time.Time
	times int // without a long rest between
}

// rest gives how long the circuit is left alone.
func (t told) rest() time.Duration {
	rest := Rest
	for n := 1; n < t.times && rest < LongestRest; n++ {
		rest *= 2
	}
	return rest
}

// Step gives the hints that are to be sent now, and when to ask again at the
// latest though nothing has changed; zero: not by time alone. Each circuit is on
// one way. Nothing passed in is kept or changed.
func (p *Planner) Step(now time.Time, topology *path.Snapshot, ways []Way) (hints []Hint, next time.Time) {
	would, best, next := p.gains(now, path.NewTrees(topology), ways)
	if would == 0 {
		return nil, next
	}
	if now.Sub(p.round) >= Round || p.round.IsZero() {
		p.round, p.left = now, max(Batch, (would+share-1)/share)
	}
	n := min(len(best), p.left)
	if now.Sub(p.last) < Every && !p.last.IsZero() {
		n = 0
	}
	hints = best[:n]
	for _, h := range hints {
		t := p.told[h.Circuit]
		t = told{at: now, times: t.times + 1}
		p.told[h.Circuit] = t
		next = earlier(next, now.Add(t.rest()))
	}
	if n > 0 {
		p.left -= n
		p.last = now
	}
	switch more := n < would; {
	case more && p.left > 0:
		next = earlier(next, p.last.Add(Every))
	case more:
		next = earlier(next, p.round.Add(Round))
	}
	return hints, next
}

// gains gives how many circuits would gain and do not rest, the first Batch of them
// in the order in which they are told, and when the first of those that rest and
// would gain has rested.
func (p *Planner) gains(now time.Time, trees *path.Trees, ways []Way) (would int, best []Hint, rested time.Time) {
	if p.told == nil {
		p.told = make(map[ginnel.CircuitID]told)
	}
	for _, w := range ways {
		gain, ok := gainOf(trees, w.Path)
		if !ok {
			continue
		}
		for _, c := range w.Circuits() {
			if t, known := p.told[c.ID]; known && now.Sub(t.at) >= forget {
				delete(p.told, c.ID)
			} else if end := t.at.Add(t.rest()); known && now.Before(end) {
				rested = earlier(rested, end)
				continue
			}
			would++
			best = among(best, Hint{Circuit: c.ID, Generation: c.Generation, Ingress: w.Path.Routers[0], Gain: gain})
		}
	}
	return would, best, rested
}

// among puts h at its place among the first Batch: those with most to gain, then by
// circuit id.
func among(best []Hint, h Hint) []Hint {
	order := func(a, b Hint) int { return cmp.Or(cmp.Compare(b.Gain, a.Gain), cmp.Compare(a.Circuit, b.Circuit)) }
	full := len(best) == Batch
	if full && order(best[Batch-1], h) <= 0 {
		return best
	}
	if full {
		best = best[:Batch-1]
	}
	at, _ := slices.BinarySearchFunc(best, h, order)
	return slices.Insert(best, at, h)
}

// Forget lets the planner forget the circuits that are gone, now and then.
func (p *Planner) Forget(gone func(ginnel.CircuitID) bool) {
	for id := range p.told {
		if gone(id) {
			delete(p.told, id)
		}
	}
}

// gainOf gives what the circuits on a way would gain by leaving it, if that is worth
// it. Those whose path is broken, or is none, are left alone: their clients know.
func gainOf(trees *path.Trees, way path.Path) (ginnel.Cost, bool) {
	n := len(way.Routers)
	if n == 0 || len(way.Links) != n-1 {
		return 0, false
	}
	now, ok := trees.Snapshot().CostOf(way)
	if !ok {
		return 0, false
	}
	best, ok := trees.From(way.Routers[0], path.Exclusions{}).Cost(way.Routers[n-1])
	return now - best, ok && path.WorthMoving(now, best)
}

// earlier gives the earlier of two instants, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
