// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// What routers say that links and circuits carry is shown for a while, and of what
// they have not reported nothing is kept.
func TestLoads(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r1, r2 := b.router("r1", "tls:r1:1"), b.router("r2", "tls:r2:1")
		b.service("web")
		b.identity("alice")
		b.identity("host")
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		b.policy("bind", ginnel.BindPolicy, "@host", "@web")
		link := &wire.LinkState{Id: "r1/r2/0", Peer: "r2", Up: true, Measured: true, RttNs: 1e6}
		b.wait(3 * time.Second)
		r1.report(&wire.State{Links: []*wire.LinkState{link}, Endpoints: []*wire.EndpointState{b.endpoint("c1", false, nil)}})
		r2.report(&wire.State{Links: []*wire.LinkState{link}})
		b.wait(time.Second)
		shown := func() (loads [3]float64, circuit [4]uint64) {
			links, err := b.api.Links.List(t.Context())
			b.must(err)
			circuits, err := b.api.Circuits.ListCircuits(t.Context())
			b.must(err)
			if len(links) != 1 || len(circuits) != 1 {
				t.Fatalf("got %v, %v", links, circuits)
			}
			if l := links[0].Load; l != nil {
				loads = [3]float64{float64(l.AToB), float64(l.BToA), l.Busy}
			}
			c := circuits[0]
			return loads, [4]uint64{c.SentRate, c.ReceivedRate, c.BytesSent, c.BytesReceived}
		}
		want := func(when string, wantLoads [3]float64, wantCircuit [4]uint64) {
			t.Helper()
			if loads, circuit := shown(); loads != wantLoads || circuit != wantCircuit {
				t.Errorf("%s: got %v, %v, want %v, %v", when, loads, circuit, wantLoads, wantCircuit)
			}
		}
		want("nothing said", [3]float64{}, [4]uint64{})

		say := func(r *testRouter, l *wire.Loads) {
			b.must(r.conn().Notify(&wire.Message{Body: &wire.Message_Loads{Loads: l}}))
			b.wait(time.Millisecond)
		}
		say(r1, &wire.Loads{
			Links:    []*wire.LinkLoad{{Id: "r1/r2/0", Sent: 100, Received: 7, Busy: 250}, {Id: "r1/r9/0", Sent: 1}},
			Circuits: []*wire.CircuitLoad{{Circuit: "c1", Sent: 90, Received: 5, BytesSent: 900, BytesReceived: 50}, {Circuit: "c9", Sent: 1}},
		})
		want("one end", [3]float64{100, 7, 0.25}, [4]uint64{90, 5, 900, 50})
		say(r2, &wire.Loads{
			Links:    []*wire.LinkLoad{{Id: "r1/r2/0", Sent: 9, Received: 80, Busy: 5000}},
			Circuits: []*wire.CircuitLoad{{Circuit: "c1", Sent: 1 << 50}}, // the client is not there
		})
		want("both ends", [3]float64{100, 9, 1}, [4]uint64{90, 5, 900, 50})
		f := b.c.fabric
		f.mu.Lock()
		if kept := f.routers["r1"].loads; len(kept.links) != 1 || len(kept.circuits) != 1 {
			t.Errorf("%v is kept", kept)
		}
		f.mu.Unlock()
		b.wait(loadAge + time.Second)
		want("later", [3]float64{}, [4]uint64{})
		say(r1, &wire.Loads{})
		f.mu.Lock()
		if kept := f.routers["r1"].loads; len(kept.links)+len(kept.circuits) != 0 {
			t.Errorf("%v is kept", kept)
		}
		f.mu.Unlock()
	})
}
