// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// hintEvery is the least time between two looks at all circuits.
	hintEvery = 250 * time.Millisecond
	// hintBatch is how many clients are told at a time, so that a change that
	// concerns many does not make them all resume at once.
	hintBatch = 64
	// hintAgain is when a client that has not moved is told again.
	hintAgain = time.Minute
)

// hints tells clients of better paths. Whenever the topology has changed it
// compares the path of each circuit, as its ingress router reports it, with the
// best one there is; the client moves by a resume. A circuit whose path is
// broken is left alone: its client knows.
//
// Its own goroutine owns everything in it but the signal.
type hints struct {
	log   *slog.Logger
	dirty signal
	// topology, circuits and outlet give what is known now; none of them waits.
	topology func() *path.Snapshot
	circuits func() [][]*endpointRow
	outlet   func(ginnel.RouterID) outlet

	// told is when the clients of circuits that are still there were told.
	told map[told]time.Time
}

// told names a hint: it is about one generation.
type told struct {
	circuit    ginnel.CircuitID
	generation uint32
}

func newHints(c *Controller) *hints {
	u := reported{c.fabric}
	return &hints{
		log: c.log, dirty: newSignal(), topology: u.topology, circuits: u.allCircuits, outlet: u.outlet,
		told: make(map[told]time.Time),
	}
}

// kick says that the topology has changed.
func (h *hints) kick() { h.dirty.fire() }

// run is the goroutine of the hints.
func (h *hints) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.dirty:
		}
		if h.look() {
			h.kick()
		}
		if !pause(ctx, hintEvery) {
			return
		}
	}
}

// look tells some of the clients that should move, those with most to gain
// first, and reports whether there are more.
func (h *hints) look() (more bool) {
	moves := h.moves()
	slices.SortFunc(moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(b.gain, a.gain), cmp.Compare(a.row.circuit, b.row.circuit))
	})
	for i, m := range moves {
		if i == hintBatch {
			return true
		}
		h.tell(m)
	}
	return false
}

// move is the client's end of a circuit that has a path better by gain.
type move struct {
	row  *endpointRow
	gain ginnel.Cost
}

// moves gives the clients that should be told.
func (h *hints) moves() (list []move) {
	trees := path.NewTrees(h.topology())
	now := time.Now()
	kept := make(map[told]time.Time, len(h.told))
	for _, ends := range h.circuits() {
		for _, row := range ends {
			key := told{row.circuit, row.generation}
			last, known := h.told[key]
			if known {
				kept[key] = last
			}
			if row.host || known && now.Sub(last) < hintAgain {
				continue
			}
			if gain, ok := gainOf(trees, row); ok {
				list = append(list, move{row, gain})
			}
		}
	}
	h.told = kept
	return list
}

// gainOf gives what the circuit of a client's end would gain by moving, if that
// is worth it.
func gainOf(trees *path.Trees, row *endpointRow) (ginnel.Cost, bool) {
	n := len(row.path)
	if n == 0 || row.path[0] != row.router || len(row.links) != n-1 {
		return 0, false
	}
	now, ok := trees.Snapshot().CostOf(path.Path{Routers: row.path, Links: row.links})
	if !ok {
		return 0, false
	}
	best, ok := trees.From(row.router, path.Exclusions{}).Cost(row.path[n-1])
	return now - best, ok && path.WorthMoving(now, best)
}

// tell sends one hint, over the router to which the client is connected.
func (h *hints) tell(m move) {
	row := m.row
	ch := h.outlet(row.router)
	if ch == nil {
		return
	}
	err := ch.send(&wire.Message{Body: &wire.Message_Hint{Hint: &wire.Hint{Circuit: string(row.circuit), Generation: row.generation}}})
	if err != nil {
		return // the channel ends, and its rows with it
	}
	h.told[told{row.circuit, row.generation}] = time.Now()
	h.log.Debug("client told of a better path", "circuit_id", string(row.circuit), "router_id", string(row.router), "gain", m.gain.String())
}
