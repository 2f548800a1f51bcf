// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// TestReplayedRoute has a controller say a Route again when the row that it made is
// gone (docs/design/007). Word for word it is refused, since its labels are spent. With
// new ones the router connects to its terminator once more, and that is all. No byte goes to the server, nothing that the server says
// leaves the router, and the connection ends at the Route's deadline + 2 s.
func TestReplayedRoute(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		var connections, heard atomic.Int64
		closed := make(chan time.Time, 8)
		f.server(func(c net.Conn) { // who speaks first, and at length
			connections.Add(1)
			go func() { _, _ = c.Write(blob(1 << 20)) }()
			n, _ := io.Copy(io.Discard, c)
			heard.Add(n)
			closed <- time.Now()
		})
		p := f.program("alice", "r1")
		routers := []string{"r1", "r2"}
		a := p.ask("c-1", "router", "r2", "web-1", "r2")
		a.arrived(f, "r1", "alice")
		said := f.messages(route{circuit: "c-1", generation: 1, routers: routers, request: a.request, egress: &wire.Egress{
			Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 2000,
		}})
		var early []byte
		for i, id := range routers {
			early = append(early, f.send(id, proto.CloneOf(said[i])).GetEarly()...)
		}
		k := p.up(a, "c-1", early, routers...)
		if _, err := io.ReadFull(k.conn, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		// While the row stands it is refused.
		if code := ginnel.Code(f.send("r2", proto.CloneOf(said[1])).GetFailure().GetCode()); code != ginnel.StaleGeneration {
			t.Errorf("again, at once: %v", code)
		}
		k.conn.Abort(ginnel.PeerReset, "enough")
		w.pass(time.Minute)
		<-closed
		if n := f.routers["r2"].Status().Circuits; n != 0 {
			t.Fatalf("%d rows are left", n)
		}
		before := len(f.c.channel("r2").reported())
		heard.Store(0)

		if res := f.send("r2", proto.CloneOf(said[1])); res.GetFailure() == nil || connections.Load() != 1 {
			t.Errorf("word for word: answered %v after %d connections", res, connections.Load())
		}
		again := proto.CloneOf(said[1])
		again.UpIn, again.UpOut = f.label("r2"), f.label("r1")
		began := time.Now()
		if res := f.send("r2", again); res.GetFailure() == nil && len(res.GetEarly()) == 0 {
			t.Errorf("answered %v", res)
		}
		if n := connections.Load(); n != 2 {
			t.Fatalf("%d connections: the test needs a second", n)
		}
		select {
		case at := <-closed:
			if took, most := at.Sub(began), time.Duration(said[1].GetDeadlineMs())*time.Millisecond+2*time.Second; took > most {
				t.Errorf("the connection lived for %v, want at most %v", took, most)
			}
		case <-time.After(time.Minute):
			t.Error("the connection lives")
		}
		w.pass(time.Second)
		if n := heard.Load(); n != 0 {
			t.Errorf("the server has got %d bytes", n)
		}
		for _, page := range f.c.channel("r2").reported()[before:] {
			for _, e := range page.GetEndpoints() { // which a frame would have made
				t.Errorf("an end of the circuit was in use: %v", e)
			}
		}
		if n := f.routers["r2"].Status().Circuits; n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}
