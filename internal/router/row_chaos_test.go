// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
)

// Whatever breaks, and however often, not a byte is lost, doubled or reordered.
func TestL65_BytesSurviveWhatBreaks(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inWorld(t, func(w *world) { shake(w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func shake(w *world, rng *rand.Rand) {
	links := [][2]string{{"r1", "r2"}, {"r2", "r4"}, {"r1", "r3"}, {"r3", "r4"}}
	f := newFabric(w, links...)
	f.server(echo)
	w.net.SetLatency("alice", "r1", 200*time.Millisecond) // few bytes, many breaks
	w.net.SetLatency("r1", "r3", 4*time.Millisecond)
	p := f.program("alice", "r1")
	w.pass(time.Second) // measured
	paths := [][]string{{"r1", "r2", "r4"}, {"r1", "r3", "r4"}}
	var calls []*call
	var stops []func()
	for i := range 3 {
		calls = append(calls, p.dial(fmt.Sprintf("c-%d", i), paths[i%2]...))
		stops = append(stops, calls[i].flood(100*time.Millisecond))
	}
	// tend does what an SDK would, and reports whether there was nothing to do.
	tend := func() (well bool) {
		well = true
		if p.conn.Err() != nil {
			for _, k := range calls {
				k.conn.Stream().ConnLost(k.generation)
			}
			p.connect("r1", calls...)
		}
		for _, k := range calls {
			if k.conn.Stream().Wanted() != flow.WantPath {
				continue
			}
			well = false
			if err := k.resume(paths[rng.IntN(2)]...); err != nil {
				f.unroute(k.circuit, 256*k.resumes+1, ginnel.CodeOK, "r1", "r2", "r3", "r4")
			}
		}
		return well
	}
	for range 12 {
		l := links[rng.IntN(len(links))]
		switch rng.IntN(5) {
		case 0:
			w.net.Cut(l[0], l[1])
		case 1:
			w.net.Silence(l[0], l[1])
			<-time.After(time.Duration(rng.IntN(5000)) * time.Millisecond)
			w.net.Resume(l[0], l[1])
		case 2:
			w.net.Cut("alice", "r1")
		case 3:
			w.net.Cut(l[0], l[1])
			w.net.Cut("alice", "r1")
		}
		<-time.After(time.Duration(rng.IntN(800)) * time.Millisecond)
		tend()
	}
	for well := 0; well < 10; well++ { // nothing has been missed for 5 s
		<-time.After(500 * time.Millisecond)
		if !tend() {
			well = 0
		}
	}
	for _, stop := range stops {
		stop()
	}
}
