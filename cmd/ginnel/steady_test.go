// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/sdk"
)

// across gives the path of a new circuit over which bytes go.
func (m *memory) across(c *sdk.Client, service string) []ginnel.RouterID {
	m.Helper()
	conn, err := m.dial(c, service, dialTime, sdk.DialOptions{Explain: true})
	if err != nil {
		m.Fatalf("dial %s: %v", service, err)
	}
	m.says(conn, "hello")
	path := conn.Explain().Path
	m.must(conn.Abort())
	return path
}

// TestL42_TenMinutesOfNoise lets the round trips to two edge routers, and over the
// links of two ways, change by up to 2 ms up or down every second: for ten minutes
// no dial enters elsewhere and no circuit takes another path. A router that comes
// nearer for good is taken.
func TestL42_TenMinutesOfNoise(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inMemory(t, func(m *memory) {
		rng := rand.New(rand.NewPCG(seed, 42))
		m.diamond()
		m.identity("alice", "r2", "r3")
		m.controller("c1")
		noise := func() {
			for _, way := range [][2]string{{"alice", "r2"}, {"alice", "r3"}, {"r2", "r4"}, {"r3", "r4"}, {"r1", "r2"}, {"r1", "r3"}} {
				m.net.SetLatency(way[0], way[1], 10*time.Millisecond+time.Duration(rng.Int64N(int64(4*time.Millisecond)))-2*time.Millisecond)
			}
		}
		for range 30 { // until round trips are smooth
			noise()
			m.wait(time.Second)
		}
		alice, bob := m.client("alice"), m.client("bob")
		l, err := bob.Listen("hosted", sdk.ListenOptions{})
		m.must(err)
		m.served.Go(func() { m.echoes(l) })
		m.wait(10 * time.Second)
		conn, err := m.dial(alice, "hosted", dialTime, sdk.DialOptions{Explain: true})
		m.must(err)
		first := conn.Explain().Path
		for i := range 600 {
			noise()
			m.wait(time.Second)
			if i%5 > 0 {
				continue
			}
			m.says(conn, "hello")
			if path := m.across(alice, "hosted"); path[0] != first[0] {
				m.Fatalf("after %d s: a dial enters at %s, at first it was %s", i, path[0], first[0])
			}
		}
		shown, err := m.api("c1").GetCircuit(m.Context(), string(conn.Circuit()))
		m.must(err)
		if shown.Generation >= 256 {
			m.Errorf("the circuit has taken %d other paths", shown.Generation/256)
		}
		// What is no noise counts.
		m.net.SetLatency("alice", string(first[0]), 40*time.Millisecond)
		m.wait(30 * time.Second)
		if path := m.across(alice, "hosted"); path[0] == first[0] {
			m.Errorf("a dial enters at %s, which is four times as far as the other", path[0])
		}
		m.must(l.Close())
	})
}

// TestQuiescedThroughRestarts takes the router where circuits enter, or end, out of
// new ones, and starts it or the controller anew meanwhile: it takes no new ones
// before it is asked to, what runs goes on, and then it is used again.
func TestQuiescedThroughRestarts(t *testing.T) {
	for _, tt := range []struct {
		name, router string
		end          func(path []ginnel.RouterID) ginnel.RouterID
	}{
		{"ingress", "r1", func(path []ginnel.RouterID) ginnel.RouterID { return path[0] }},
		{"egress", "r4", func(path []ginnel.RouterID) ginnel.RouterID { return path[len(path)-1] }},
	} {
		for _, restarted := range []string{"controller", "router"} {
			t.Run(tt.name+", "+restarted+" restarts", func(t *testing.T) {
				inMemory(t, func(m *memory) {
					m.diamond()
					m.identity("alice", "r1", "r3")
					m.identity("bob", "r3", "r4")
					m.net.SetLatency("alice", "r3", 30*time.Millisecond)
					m.net.SetLatency("r1", "r3", 200*time.Millisecond) // so that r4 is nearer
					m.controller("c1")
					m.wait(10 * time.Second)
					alice, bob := m.client("alice"), m.client("bob")
					l, err := bob.Listen("hosted", sdk.ListenOptions{})
					m.must(err)
					m.served.Go(func() { m.echoes(l) })
					m.wait(5 * time.Second)
					uses := func(want bool) {
						m.Helper()
						for range 3 {
							if path := m.across(alice, "hosted"); (tt.end(path) == ginnel.RouterID(tt.router)) != want {
								m.Errorf("a new circuit over %v", path)
							}
						}
					}
					uses(true)
					old, err := m.dial(alice, "hosted", dialTime, sdk.DialOptions{})
					m.must(err)
					m.quiesce(tt.router, true)
					uses(false)
					if restarted == "controller" {
						m.stopController("c1")
						m.says(old, "nobody in control")
						m.controller("c1")
					} else {
						m.stopRouter(tt.router)
						m.wait(time.Second)
						m.startRouter(tt.router)
					}
					m.wait(20 * time.Second)
					m.says(old, "what runs goes on")
					uses(false)
					m.quiesce(tt.router, false)
					m.wait(20 * time.Second) // its failures are forgotten
					uses(true)
					m.says(old, "to the end")
					m.must(l.Close())
				})
			})
		}
	}
}

// quiesce makes a router take no new circuits, or take them again.
func (m *memory) quiesce(id string, is bool) {
	m.Helper()
	m.update(func(tx *store.Tx) error {
		r, err := tx.Routers().Get(ginnel.RouterID(id))
		if err != nil {
			return err
		}
		r.Quiesced = is
		return tx.Routers().Put(r)
	})
	m.wait(time.Second)
}
