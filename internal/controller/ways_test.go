// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ginnel/ginnel"
)

// Whatever ends of circuits come and go: each circuit is listed once, by the newest
// end of its client, on the path that this end is on.
func TestWaysHoldTheNewestEnds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	c := &Controller{log: slog.New(slog.DiscardHandler)}
	f := newFabric(c)
	routers := []ginnel.RouterID{"a", "b", "c"}
	chans := map[ginnel.RouterID]*channel{}
	for _, id := range routers {
		chans[id] = &channel{router: id}
		f.begin(chans[id])
	}
	for _, generation := range rng.Perm(5000) {
		at := routers[rng.IntN(len(routers))]
		if rng.IntN(200) == 0 { // its channel ends, and begins anew
			f.forget(chans[at])
			f.begin(chans[at])
		}
		row := &endpointRow{
			endpointKey: endpointKey{ginnel.CircuitID(fmt.Sprint("c", rng.IntN(20))), rng.IntN(3) == 0},
			router:      at, generation: uint32(generation), removed: rng.IntN(4) == 0,
			path: []ginnel.RouterID{at, routers[rng.IntN(len(routers))]}, links: []ginnel.LinkID{ginnel.LinkID(fmt.Sprint("l", rng.IntN(3)))},
		}
		if rng.IntN(20) == 0 {
			row.path[0] = "elsewhere" // which is a lie
		}
		f.applied(chans[at], softPage{endpoints: []*endpointRow{row}})

		want := map[ginnel.CircuitID]*endpointRow{}
		for id, ends := range f.circuits {
			for e := range ends {
				if n := want[id]; !e.host && (n == nil || e.generation > n.generation) {
					want[id] = e
				}
			}
		}
		listed := 0
		for key, w := range f.ways {
			if len(w.ends) == 0 || key != w.key {
				t.Fatalf("way %q of %d ends is kept as %q", w.key, len(w.ends), key)
			}
			for i, e := range w.ends {
				listed++
				newest := want[e.circuit]
				if e.way != w || e.place != i || e.generation != newest.generation || wayKey(e.path, e.links) != key {
					t.Fatalf("circuit %s: listed by generation %d on %q, the newest end is of %d", e.circuit, e.generation, key, newest.generation)
				}
			}
		}
		for _, e := range want {
			if e.path[0] == e.router {
				listed--
			}
		}
		if listed != 0 {
			t.Fatalf("%d circuits are listed too often or not", listed)
		}
	}
	for _, id := range routers {
		f.forget(chans[id])
	}
	if len(f.ways) != 0 || len(f.circuits) != 0 {
		t.Errorf("%d ways are left", len(f.ways))
	}
	if !slices.ContainsFunc(routers, func(id ginnel.RouterID) bool { return f.routers[id] == nil }) {
		t.Error("nothing was forgotten")
	}
}
