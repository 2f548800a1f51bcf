// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"net"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// loadsOf gives what a router has said of loads since it was asked last.
func (f *fabric) loadsOf(id string) (links []*wire.LinkLoad, circuits []*wire.CircuitLoad) {
	isLoads := func(m *wire.Message) bool { return m.GetLoads() != nil }
	for m := f.find(id, isLoads); m != nil; m = f.find(id, isLoads) {
		links = append(links, m.GetLoads().GetLinks()...)
		circuits = append(circuits, m.GetLoads().GetCircuits()...)
	}
	return links, circuits
}

// What goes over links is counted, of each and of all together, and does not fall
// when a connection is replaced.
func TestCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2", "r3")
		const size = 1 << 20
		data := blob(size)
		sum, failed := k.exchange(data)
		f.wantSum(data, sum, failed, 10*time.Second)

		c := f.routers["r2"].Counts()
		if len(c.Links) != 2 || c.Links[0].ID != "r1/r2/0" || c.Links[1].Peer != "r3" || !c.Links[0].Up {
			t.Fatalf("got %+v", c)
		}
		var links Traffic
		for _, l := range c.Links {
			if l.Sent.Bytes < size || l.Sent.Bytes > 2*size || l.Received.Bytes < size || l.Sent.Frames < size/wire.MaxFrame || l.Received.Frames > l.Received.Bytes {
				t.Errorf("got %+v of a link", l)
			}
			links = links.and(l.Traffic)
		}
		if c.All != links || c.Edges != 0 {
			t.Errorf("got %+v over all, want that of the links, %+v", c.All, links)
		}
		if c := f.routers["r1"].Counts(); c.Edges != 1 || c.All.Received.Bytes < c.Links[0].Received.Bytes+size {
			t.Errorf("got %+v where the client is", c)
		}

		w.net.Cut("r1", "r2")
		w.until(f.routers["r2"], 5*time.Second, "unlinked", func(s Status) bool { return !s.Links[0].Up })
		w.until(f.routers["r2"], 5*time.Second, "linked again", func(s Status) bool { return s.Links[0].Up })
		again := f.routers["r2"].Counts()
		if l, was := again.Links[0], c.Links[0]; l.Sent.Bytes < was.Sent.Bytes || again.All.Received.Bytes < c.All.Received.Bytes {
			t.Errorf("got %+v after the link's connection was replaced, it was %+v", again, c)
		}
		f.configure("r2", 9, nil) // no links any more
		last := f.routers["r2"].Counts()
		if len(last.Links) != 0 || last.All.Sent.Bytes < again.All.Sent.Bytes {
			t.Errorf("got %+v without links, it was %+v", last, again)
		}
	})
}

// A server that does not read for a while makes the circuit wait for credit, which
// is counted where it would go out; a RESUME is, where it comes.
func TestCountsOfStallsAndResumes(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		f.server(func(c net.Conn) {
			<-time.After(50 * time.Millisecond)
			echo(c)
		})
		k := f.program("alice", "r1").dial("c-1", "r1", "r2", "r3")
		stop := k.flood(time.Millisecond)
		w.pass(100 * time.Millisecond)
		w.net.Cut("r1", "r2")
		stop() // all arrives: the path was mended
		c := f.routers["r2"].Counts()
		if c.Links[0].Resumes == 0 || c.All.Resumes < c.Links[0].Resumes {
			t.Errorf("got %+v after the path was mended", c)
		}
		if c.Links[1].Stalls == 0 || c.All.Stalls < c.Links[1].Stalls {
			t.Errorf("got %+v though the server did not read", c)
		}
		if c := f.routers["r3"].Counts(); c.Links[0].Stalls == 0 {
			t.Errorf("got %+v where the circuit ends, though all came back at once", c)
		}
	})
}

// Controllers hear every 5 s what moves, and once that it does not any more.
func TestLoads(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2")
		w.pass(loadsEvery)
		f.loadsOf("r1")
		f.loadsOf("r2")
		const rest = 200 * time.Millisecond
		stop := k.flood(rest)
		w.pass(2 * loadsEvery)
		links, circuits := f.loadsOf("r1")
		if len(links) != 2 || links[1].GetId() != "r1/r2/0" || links[1].GetBusy() > 1000 {
			t.Fatalf("r1 said %v", links)
		}
		if sent, least := links[1].GetSent(), uint64(100<<10); sent < least || links[1].GetReceived() < least {
			t.Errorf("r1 said %v, want at least %d bytes a second", links[1], least)
		}
		if len(circuits) != 2 || circuits[1].GetCircuit() != "c-1" || circuits[1].GetSent() == 0 || circuits[1].GetBytesSent() < circuits[0].GetBytesSent() {
			t.Errorf("r1 said %v", circuits)
		}
		if links, circuits := f.loadsOf("r2"); len(links) != 2 || len(circuits) != 0 {
			t.Errorf("r2 said %v, %v: the client is not there", links, circuits)
		}
		stop()
		w.pass(3 * loadsEvery)
		links, circuits = f.loadsOf("r1")
		if n := len(links); n == 0 || links[n-1].GetSent() > beatBytes {
			t.Errorf("r1 said %v of a link that carries nothing", links)
		}
		if len(links) > 3 || len(circuits) > 3 {
			t.Errorf("r1 said %v, %v: idle ones more than once", links, circuits)
		}
		w.pass(3 * loadsEvery)
		if links, circuits := f.loadsOf("r1"); len(links)+len(circuits) != 0 {
			t.Errorf("r1 said %v, %v, and nothing moves", links, circuits)
		}
	})
}

func TestCarriedSince(t *testing.T) {
	for name, c := range map[string]struct {
		now, before carried
		sent        uint64
		tell, moved bool
	}{
		"idle":            {carried{sent: 5}, carried{sent: 5}, 0, false, false},
		"heartbeats":      {carried{sent: 14, received: 12}, carried{sent: 5, received: 2}, 9, false, false},
		"moves":           {carried{sent: 25}, carried{sent: 5}, 20, true, true},
		"comes":           {carried{received: 25}, carried{received: 5}, 0, true, true},
		"moves no more":   {carried{sent: 5}, carried{sent: 5, moved: true}, 0, true, false},
		"counted anew":    {carried{sent: 30}, carried{sent: 500}, 30, true, true},
		"the first times": {carried{sent: 30}, carried{}, 30, true, true},
	} {
		sent, _, _, tell := c.now.since(c.before, 10)
		if sent != c.sent || tell != c.tell || c.now.moved != c.moved {
			t.Errorf("%s: got %d, tell %v, moved %v", name, sent, tell, c.now.moved)
		}
	}
}

// More than one message holds are told of in several.
func TestLoadsInPages(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		r := f.routers["r1"]
		all := &wire.Loads{}
		for range 3 * loadsMost {
			all.Circuits = append(all.Circuits, &wire.CircuitLoad{Circuit: string(ginnel.CircuitID("0123456789abcdef0123456789abcdef")), Sent: 1 << 40, Received: 1 << 40, BytesSent: 1 << 50, BytesReceived: 1 << 50})
		}
		r.loads.tell(all)
		w.pass(time.Millisecond)
		if _, circuits := f.loadsOf("r1"); len(circuits) != 3*loadsMost {
			t.Errorf("%d circuits were told of, want %d", len(circuits), 3*loadsMost)
		}
	})
}
