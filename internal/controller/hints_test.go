// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/hint"
	"github.com/ginnel/ginnel/internal/wire"
)

// inHintWorld is a circuitWorld with the loop of the hints, and circuits of
// alice over A-B-C.
func inHintWorld(t *testing.T, circuits int, test func(t *testing.T, w *circuitWorld, h *hints)) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		for i := range circuits {
			w.rows = append(w.rows, &endpointRow{
				endpointKey: endpointKey{circuit: ginnel.CircuitID(fmt.Sprintf("c%03d", i))}, router: "A", generation: 1,
				path: []ginnel.RouterID{"A", "B", "C"}, links: []ginnel.LinkID{"A/B/0", "B/C/0"},
			})
		}
		h := newHints(w.c)
		h.topology, h.outlet = w.topology, w.outlet
		h.ways = func() []hint.Way {
			w.mu.Lock()
			defer w.mu.Unlock()
			f := newFabric(w.c)
			for _, row := range w.rows {
				row.way = nil
				f.listLocked(row)
			}
			return f.clientWays()
		}
		h.gone = func(id ginnel.CircuitID) bool { return len(w.endpoints(id)) == 0 }
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { h.run(ctx) })
		defer loop.Wait()
		defer cancel()
		test(t, w, h)
	})
}

// cost changes what a link costs, in units, and tells the hints.
func (w *circuitWorld) cost(h *hints, id ginnel.LinkID, units int64) {
	for i := range w.links {
		if w.links[i].ID == id {
			w.links[i].StaticCost = ginnel.Units(units)
		}
	}
	w.publish()
	h.kick()
}

// hinted gives the hints that a router was sent.
func (r *fakeRouter) hinted() (list []*wire.Hint) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if m.GetHint() != nil {
			list = append(list, m.GetHint())
		}
	}
	return list
}

// Noise and small gains move nobody: A-B-C costs 22, A-D-C 30.
func TestL42_NoiseMovesNobody(t *testing.T) {
	inHintWorld(t, 1, func(t *testing.T, w *circuitWorld, h *hints) {
		for i := range 600 {
			w.cost(h, "A/B/0", int64(1+i%12)) // up to 33 against 30
			time.Sleep(time.Second)
		}
		if got := w.nodes["A"].hinted(); len(got) != 0 {
			t.Errorf("hints %v", got)
		}
	})
}

func TestL43_DearRouterIsLeftOnce(t *testing.T) {
	inHintWorld(t, 1, func(t *testing.T, w *circuitWorld, h *hints) {
		w.cost(h, "B/C/0", 1000)
		for range 30 {
			h.kick()
			time.Sleep(time.Second)
		}
		got := w.nodes["A"].hinted()
		if len(got) != 1 || got[0].GetCircuit() != "c000" || got[0].GetGeneration() != 1 {
			t.Fatalf("hints %v, want one", got)
		}
		time.Sleep(hint.Rest) // it has not moved
		if got := w.nodes["A"].hinted(); len(got) != 2 {
			t.Errorf("hints %v, want a second one", got)
		}
		w.mu.Lock()
		w.rows[0] = &endpointRow{
			endpointKey: w.rows[0].endpointKey, router: "A", generation: 257,
			path: []ginnel.RouterID{"A", "D", "C"}, links: []ginnel.LinkID{"A/D/0", "C/D/0"},
		}
		w.mu.Unlock()
		time.Sleep(4 * hint.Rest)
		h.kick()
		if got := w.nodes["A"].hinted(); len(got) != 2 {
			t.Errorf("hints %v, want no more", got)
		}
	})
}

// A quarter is told in a round, a batch at a time, without a kick between.
func TestHintsAreSpread(t *testing.T) {
	inHintWorld(t, 12*hint.Batch, func(t *testing.T, w *circuitWorld, h *hints) {
		w.cost(h, "B/C/0", 1000)
		for i := range 5 {
			if got, want := len(w.nodes["A"].hinted()), min(i+1, 3)*hint.Batch; got != want {
				t.Errorf("after %d looks: %d hints, want %d", i+1, got, want)
			}
			time.Sleep(hint.Every)
		}
		time.Sleep(hint.Round)
		if got := len(w.nodes["A"].hinted()); got <= 3*hint.Batch || got > 6*hint.Batch {
			t.Errorf("%d hints in two rounds", got)
		}
	})
}

// What cannot be a better path of the client's is left alone.
func TestNoHint(t *testing.T) {
	inHintWorld(t, 1, func(t *testing.T, w *circuitWorld, h *hints) {
		row := *w.rows[0]
		host, lying, odd, broken := row, row, row, row
		lying.circuit, odd.circuit, broken.circuit = "lying", "odd", "broken"
		host.host = true
		lying.path = []ginnel.RouterID{"D", "B", "C"}
		odd.links = nil
		broken.links = []ginnel.LinkID{"A/B/0", "B/C/1"}
		w.rows = []*endpointRow{&host, &lying, &odd, &broken, {router: "A"}}
		w.cost(h, "B/C/0", 1000)
		if got := w.nodes["A"].hinted(); len(got) != 0 {
			t.Errorf("hints %v", got)
		}
	})
}
