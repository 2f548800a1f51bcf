// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// egressOnly sends the Routes of one attempt to the last of two routers.
func (f *fabric) egressOnly(a *asking, circuit string, generation uint32, change func(*wire.Egress)) *wire.RouteResult {
	f.w.t.Helper()
	e := &wire.Egress{Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 1000}
	change(e)
	m := f.messages(route{circuit: circuit, generation: generation, routers: []string{"r1", "r2"}, egress: e})
	return f.send("r2", m[1])
}

func TestL32_L39_WhyAnEgressRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		p := f.program("alice", "r1")
		dark, err := w.net.Host("dark").Listen("dark:80")
		if err != nil {
			t.Fatal(err)
		}
		defer dark.Close()
		w.net.Silence("dark", "r2")
		good := p.ask("c-1", "router", "r2", "web-1", "r2")
		other := p.ask("c-2", "router", "r3", "web-1", "r2")
		silent := p.ask("c-1", "router", "r2", "dark-1", "r2")
		stream := p.ask("c-1", "router", "r2", "udp-1", "r2")
		forged := p.ask("c-1", "router", "r2", "web-1", "r2")
		// In another controller's name: what c1 says of its own, its connection vouches for.
		forged.ticket.Leaf = w.issue(ginnel.Peer{Role: ginnel.RoleController, ID: "c2"}, 0).Leaf.Raw
		listen := func() { f.server(echo) }
		for i, c := range []struct {
			name   string
			ask    *asking
			before func()
			change func(*wire.Egress)
			want   ginnel.Code
			within time.Duration
		}{
			{"nobody listens", good, nil, func(*wire.Egress) {}, ginnel.RouterErrConnRefused, 0},
			{"black hole", silent, nil, func(e *wire.Egress) { e.Terminator = "dark-1" }, ginnel.RouterErrDialTimedOut, time.Second},
			{"no such terminator", good, nil, func(e *wire.Egress) { e.Terminator = "web-9" }, ginnel.RouterErrInvalidTerminator, 0},
			{"a stream to a terminator of datagrams", stream, nil, func(e *wire.Egress) { e.Terminator = "udp-1" }, ginnel.RouterErrMisconfiguredTerminator, 0},
			{"ticket for another terminator", silent, nil, func(*wire.Egress) {}, ginnel.NotAuthenticated, 0},
			{"ticket for another router", other, nil, func(*wire.Egress) {}, ginnel.RouterErrGeneric, 0},
			{"ticket nobody signed", forged, nil, func(*wire.Egress) {}, ginnel.NotAuthenticated, 0},
			{"no circuit to resume", good, nil, func(e *wire.Egress) { e.Resume = true }, ginnel.PeerReset, 0},
			{"bad first bytes", good, listen, func(e *wire.Egress) { e.Early = []byte("GET / HTTP/1.1\r\n\r\n") }, ginnel.NotAuthenticated, 0},
			{"good at last", good, nil, func(*wire.Egress) {}, ginnel.CodeOK, 0},
		} {
			if c.before != nil {
				c.before()
			}
			start := time.Now()
			res := f.egressOnly(c.ask, "c-1", uint32(i+1), c.change)
			if got := ginnel.Code(res.GetFailure().GetCode()); got != c.want {
				t.Errorf("%s: got %v %q, want %v", c.name, got, res.GetFailure().GetMessage(), c.want)
			}
			if took := time.Since(start); took > c.within+10*time.Millisecond {
				t.Errorf("%s: took %v", c.name, took)
			}
			if c.want == ginnel.CodeOK && len(res.GetEarly()) == 0 {
				t.Errorf("%s: no first bytes", c.name)
			}
		}
		w.pass(200 * time.Millisecond)
		if n := f.routers["r2"].Status().Circuits; n != 1 {
			t.Errorf("%d rows", n)
		}
		web, dark1 := f.termOf("r2", "web-1"), f.termOf("r2", "dark-1")
		if web.GetCircuits() != 1 || ginnel.Cost(web.GetFailureCost()) > 18*ginnel.Unit || web.GetFailureCost() == 0 {
			t.Errorf("web-1 costs %v", web)
		}
		if dark1.GetFailureCost() < int64(19*ginnel.Unit) {
			t.Errorf("dark-1 costs %v", dark1)
		}
	})
}

// An attempt that failed elsewhere, or was given up, leaves nothing at the egress.
func TestL37_L38_UnroutedAttemptsLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		dark, err := w.net.Host("dark").Listen("dark:80")
		if err != nil {
			t.Fatal(err)
		}
		defer dark.Close()
		w.net.Silence("dark", "r2")
		a := f.program("alice", "r1").ask("c-1", "router", "r2", "web-1", "r2")
		for i := range uint32(100) {
			if res := f.egressOnly(a, "c-1", i+1, func(*wire.Egress) {}); res.GetFailure() != nil {
				t.Fatal(res)
			}
			f.unroute("c-1", i+1, ginnel.CodeOK, "r2")
		}
		b := f.program("bob", "r1").ask("c-2", "router", "r2", "dark-1", "r2")
		m := f.messages(route{circuit: "c-2", generation: 1, routers: []string{"r1", "r2"}, egress: &wire.Egress{
			Terminator: "dark-1", Service: "web", Ticket: b.ticket, Early: b.hello, ConnectMs: 5000,
		}})
		f.notify("r2", &wire.Message{Body: &wire.Message_Route{Route: m[1]}})
		f.next("r2", "RouteConnecting", func(m *wire.Message) bool { return m.GetRouteConnecting().GetCircuit() == "c-2" })
		f.unroute("c-2", 1, ginnel.CodeOK, "r2")
		res := f.next("r2", "a result", func(m *wire.Message) bool { return m.GetRouteResult().GetCircuit() == "c-2" })
		if code := ginnel.Code(res.GetRouteResult().GetFailure().GetCode()); code != ginnel.Cancelled {
			t.Errorf("got %v", code)
		}
		w.pass(200 * time.Millisecond)
		for _, id := range []string{"web-1", "dark-1"} {
			if s := f.termOf("r2", id); s.GetCircuits() != 0 || s.GetFailureCost() != 0 {
				t.Errorf("%s costs %v", id, s)
			}
		}
		if n := f.routers["r2"].Status().Circuits; n != 0 {
			t.Errorf("%d rows", n)
		}
		w.pass(2 * time.Minute)
		if left := f.routers["r2"].circuits.budget.Left(); left != circuitBudget {
			t.Errorf("%d bytes of budget are kept", circuitBudget-left)
		}
		if n := len(f.routers["r2"].circuits.hosted); n != 0 {
			t.Errorf("%d circuits are kept", n)
		}
	})
}

// A reset of the server is one for the client, and the other way round.
func TestResetGoesThrough(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		ended := make(chan error, 1)
		f.server(func(c net.Conn) {
			buf := make([]byte, 1)
			_, err := io.ReadFull(c, buf)
			if err == nil && buf[0] == 'x' {
				w.net.Cut("web", "r2")
				return
			}
			_, err = c.Read(buf)
			ended <- err
		})
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2")
		if _, err := k.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(k.conn); !errors.Is(err, ginnel.PeerReset) {
			t.Errorf("client: got %v", err)
		}
		k = p.dial("c-2", "r1", "r2")
		if _, err := k.conn.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Millisecond)
		k.conn.Abort(ginnel.PeerReset, "enough")
		select {
		case <-ended:
		case <-time.After(time.Second):
			t.Error("the server's connection stays")
		}
	})
}

// One reader stops; the others go on, and what it makes the routers keep is bounded.
func TestL62_SlowReader(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		stuck := make(chan struct{})
		f.server(func(c net.Conn) {
			first := make([]byte, 1)
			if _, err := io.ReadFull(c, first); err == nil && first[0] == 's' {
				<-stuck
				return
			}
			echo(c)
		})
		defer close(stuck)
		p := f.program("alice", "r1")
		slow := p.dial("c-slow", "r1", "r2", "r3")
		if _, err := slow.conn.Write([]byte("s")); err != nil {
			t.Fatal(err)
		}
		w.wg.Go(func() {
			block := make([]byte, 1<<20)
			for range 64 {
				if _, err := slow.conn.Write(block); err != nil {
					return
				}
			}
		})
		w.pass(5 * time.Second)
		quick := p.dial("c-quick", "r1", "r2", "r3")
		if _, err := quick.conn.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		data := blob(4 << 20)
		sum, failed := quick.exchange(data)
		f.wantSum(data, sum, failed, 10*time.Second)
		for id, r := range f.routers {
			if held := circuitBudget - r.circuits.budget.Left(); held > 20<<20 {
				t.Errorf("%s holds %d bytes", id, held)
			}
		}
		slow.conn.Abort(ginnel.PeerReset, "")
		synctest.Wait()
	})
}
