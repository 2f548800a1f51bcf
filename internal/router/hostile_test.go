// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/internal/wire/wiretest"
)

// An identity that has as much as it may leaves room for the others.
func TestOneIdentityLeavesRoom(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		p := f.program("alice", "r1")
		p.dial("c-1", "r1", "r2")
		r1 := f.routers["r1"].circuits
		synctest.Wait()
		if n := r1.rowsOf["alice"]; n != 1 {
			t.Errorf("%d rows are counted", n)
		}
		r1.rowsOf["alice"] = maxIdentityRows
		a := p.ask("c-2", "router", "r2", "web-1", "r2")
		a.arrived(f, "r1", "alice")
		_, err := f.set(route{circuit: "c-2", generation: 1, routers: []string{"r1", "r2"}, request: a.request, egress: &wire.Egress{
			Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 2000,
		}})
		if !errors.Is(err, ginnel.Busy) {
			t.Errorf("got %v", err)
		}
		f.program("bob", "r1").dial("c-3", "r1", "r2")
		r1.rowsOf["alice"] = 1
		f.unroute("c-1", 1, ginnel.CodeOK, "r1", "r2")
		if _, left := r1.rowsOf["alice"]; left {
			t.Error("rows are counted that are gone")
		}
	})
}

func TestProcessesOfOneIdentity(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		p := f.program("alice", "r1")
		connect := func(process string) error {
			conn, err := transport.DialFramed(w.ctx, w.net.Host("alice"), "r1:7000",
				pki.ClientConfig(p.holder, time.Now, routerPeer("r1"), wire.ALPNEdge), transport.IdentifyBy(p.holder))
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Handshake(w.ctx, transport.Greeting{Self: "alice", Hello: &wire.Hello{Network: testNetwork, Boot: "b", Process: process}})
			if err == nil {
				w.wg.Go(func() { _ = conn.Run(w.ctx, p) })
			}
			return err
		}
		f.routers["r1"].edge.most = 8
		for i := range 7 {
			if err := connect(fmt.Sprint("p", i)); err != nil {
				t.Fatal(i, err)
			}
		}
		synctest.Wait()
		if err := connect("one too many"); err == nil {
			t.Errorf("one more is taken beside %d", len(f.routers["r1"].edge.of("alice")))
		}
		f.program("bob", "r1")
	})
}

// A client gives up when its circuit is up and the answer on its way: no router
// keeps the circuit until the deadline of its Route.
func TestL38_GivenUpAfterTheAnswer(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		p := f.program("alice", "r1")
		for i, routers := range [][]string{{"r1", "r2"}, {"r1"}} {
			egress := routers[len(routers)-1]
			circuit := "c-" + egress
			a := p.ask(circuit, "router", egress, "web-1", egress)
			a.arrived(f, "r1", "alice")
			if _, err := f.set(route{circuit: circuit, generation: 1, routers: routers, request: a.request, deadline: time.Minute, egress: &wire.Egress{
				Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 2000,
			}}); err != nil {
				t.Fatal(err)
			}
			if err := p.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: uint64(i + 1)}}}); err != nil {
				t.Fatal(err)
			}
			w.pass(200 * time.Millisecond) // costs are reported that often
			if n := f.routers["r1"].Status().Circuits; n != 0 {
				t.Errorf("%v: r1 has %d rows", routers, n)
			}
			if s := f.termOf(egress, "web-1"); s.GetCircuits() != 0 {
				t.Errorf("%v: the terminator has %d circuits", routers, s.GetCircuits())
			}
			w.pass(15 * time.Second)
			if n := f.routers["r2"].Status().Circuits; n != 0 {
				t.Errorf("%v: r2 has %d rows", routers, n)
			}
		}
	})
}

// hostile is an SDK that sends what none would.
type hostile struct {
	*program
	f   *fabric
	rng *rand.Rand
	sig *wire.Signed
}

// send sends anything, over a new connection when the last one was ended.
func (h *hostile) send(labels []uint32) {
	if h.conn.Err() != nil {
		h.connect("r1")
	}
	if h.rng.IntN(3) == 0 {
		m := new(wire.Message)
		wiretest.Scramble(h.rng, m, h.sig)
		_ = h.conn.SendControl(m)
		return
	}
	label := labels[h.rng.IntN(len(labels))]
	if h.rng.IntN(8) == 0 {
		label ^= 1 << h.rng.IntN(32)
	}
	frame := wiretest.Frame(h.rng, label)
	if label == 0 && wire.Type(frame[4]) == wire.Control {
		return
	}
	_ = h.conn.SendData(nil, h.conn.NewQueue(), frame)
}

// An identity sends garbage of every type with the labels of its own circuits, of
// others and of none: the circuits of others go on, and nothing is kept of its own.
func TestGarbageFromAnIdentity(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		good := f.program("bob", "r1").dial("c-good", "r1", "r2")
		mallory := f.program("mallory", "r1")
		rng := rand.New(rand.NewPCG(2, 3))
		h := &hostile{program: mallory, f: f, rng: rng, sig: good.ticket}
		data := blob(1 << 20)
		for round := range 20 {
			if h.conn.Err() != nil {
				h.connect("r1")
			}
			bad := mallory.dial(fmt.Sprint("c-bad-", round), "r1", "r2")
			labels := []uint32{0, good.send, bad.send, bad.send, bad.send}
			for range 200 {
				h.send(labels)
			}
			w.pass(time.Millisecond)
			for id := range f.routers { // what it made the router ask
				for f.find(id, func(m *wire.Message) bool { return m.GetId() != 0 || m.GetCancel() != nil }) != nil {
				}
			}
		}
		sum, failed := good.exchange(data)
		f.wantSum(data, sum, failed, 10*time.Second)
		mallory.conn.Close(nil)
		w.pass(5 * time.Minute)
		for id, r := range f.routers {
			if n := r.Status().Circuits; n > 1 {
				t.Errorf("router %s has %d rows", id, n)
			}
		}
	})
}
