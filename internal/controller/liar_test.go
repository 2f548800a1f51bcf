// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/internal/wire/wiretest"
)

// A router that reports without end is hung up; what it has said is forgotten, and
// another router is served all the while.
func TestFloodOfReports(t *testing.T) {
	for name, page := range map[string]func(i int) *wire.State{
		"links": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 200 {
				s.Links = append(s.Links, &wire.LinkState{Id: fmt.Sprintf("r1/x%d/%d", i, k), Up: true})
			}
			return s
		},
		"edge connections": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 900 {
				s.Edges = append(s.Edges, &wire.EdgeState{Identity: "alice", Connection: uint64(1000*i + k)})
			}
			return s
		},
		"terminators": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 900 {
				s.Terminators = append(s.Terminators, &wire.TerminatorState{Id: fmt.Sprint(i, "/", k)})
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTestbed(t, func(t *testing.T, b *testbed) {
				liar, honest := b.router("r1", "tls:r1:1"), b.router("r2", "tls:r2:1")
				first := liar.conn()
				for i := range 400 {
					if first.Notify(state(page(i))) != nil {
						break
					}
					if i%16 == 0 {
						b.wait(10 * time.Millisecond)
					}
				}
				b.wait(10 * time.Millisecond)
				if first.Err() == nil {
					t.Error("the channel lives")
				}
				if n := len(b.c.fabric.links()); n > maxLinks {
					t.Errorf("%d links are kept", n)
				}
				if len(honest.live()) != 1 {
					t.Error("another router lost its channel")
				}
			})
		})
	}
}

// Whatever an enrolled router says, the controller lives, and serves others.
func TestGarbageFromARouter(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		liar, honest := b.router("r1", "tls:r1:1"), b.router("r2", "tls:r2:1")
		b.service("web")
		host := b.identity("host")
		b.policy("may-host", ginnel.BindPolicy, "@host", "@web")
		bind := b.bind(host, nil)
		rng := rand.New(rand.NewPCG(1, 1))
		sent := 0
		for i := range 3000 {
			live := liar.live()
			if len(live) == 0 { // hung up: it is dialed again
				b.wait(time.Minute)
				continue
			}
			m := new(wire.Message)
			wiretest.Scramble(rng, m, bind)
			if i%5 == 0 {
				m.Id = 0
			}
			if live[len(live)-1].SendControl(m) == nil {
				sent++
			}
			if i%100 == 0 {
				b.wait(time.Millisecond)
			}
		}
		b.wait(time.Minute)
		if sent < 2000 {
			t.Errorf("%d messages were sent", sent)
		}
		if !honest.connected() || len(honest.live()) != 1 {
			t.Error("another router lost its channel")
		}
		if got := b.candidates("web"); len(got) > 0 && got[0].Host != "host" {
			t.Errorf("candidates %v", got)
		}
	})
}
