// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// left reports what a router keeps of circuits.
func (c *circuits) left() string {
	c.mu.Lock()
	hosted, named := len(c.hosted), len(c.byRoute)
	c.mu.Unlock()
	c.endpoints.mu.Lock()
	ends, attached := len(c.endpoints.ends)+len(c.endpoints.expected), len(c.endpoints.attached)
	c.endpoints.mu.Unlock()
	c.terms.mu.Lock()
	open := len(c.terms.open)
	c.terms.mu.Unlock()
	c.r.edge.mu.Lock()
	asked := len(c.r.edge.asked)
	c.r.edge.mu.Unlock()
	return fmt.Sprintf("%d rows, %d named, %d hosted, %d ends, %d attached, %d open, %d asked, %d bytes",
		c.count(), named, hosted, ends, attached, open, asked, circuitBudget-c.budget.Left())
}

const nothing = "0 rows, 0 named, 0 hosted, 0 ends, 0 attached, 0 open, 0 asked, 0 bytes"

func TestL68_ManyShortCircuitsLeaveNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		p, bob := f.program("alice", "r1"), f.program("bob", "r2")
		bob.hosts(echoCircuit)
		id, err := bob.bind("r2", asIs)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 60 {
			var k *call
			if i%2 == 0 {
				k = p.dial(fmt.Sprintf("c-%d", i), "r1", "r2")
			} else {
				k = p.dialHost(bob, id, fmt.Sprintf("c-%d", i), "r1", "r2")
			}
			if _, err := k.conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(k.conn, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			switch i % 6 {
			case 0, 1:
				_ = k.conn.Close()
			case 2, 3:
				k.conn.Abort(ginnel.PeerReset, "enough")
			default:
				_ = k.conn.CloseWrite()
				_, _ = io.ReadAll(k.conn)
			}
		}
		w.pass(time.Second)
		if s := f.termOf("r2", "web-1"); s.GetCircuits() != 0 {
			t.Errorf("web-1 counts %d circuits", s.GetCircuits())
		}
		if s := f.termOf("r2", id); s.GetCircuits() != 0 {
			t.Errorf("%s counts %d circuits", id, s.GetCircuits())
		}
		synctest.Wait()
		for name, r := range f.routers { // rows stay for a while, and hold little
			r.circuits.mu.Lock()
			for _, row := range r.circuits.byRoute {
				if row.host != nil && row.host.stream.Load() != nil || row.role != nil && row.role.ticket != nil {
					t.Errorf("%s keeps what circuit %s was made of", name, row.circuit)
				}
				r.circuits.post(firstFrame{row}) // by a reader that was slow to tell
			}
			r.circuits.mu.Unlock()
			synctest.Wait()
			if n := len(r.circuits.endpoints.ends); n != 0 {
				t.Errorf("%s has %d ends of circuits that are over", name, n)
			}
		}
		w.pass(30 * time.Second)
		for name, r := range f.routers {
			if left := r.circuits.left(); left != nothing {
				t.Errorf("%s keeps %s", name, left)
			}
		}
	})
}

// A peer that vanishes without closing leaves nothing within the idle limit.
func TestL66_VanishedPeerIsCollected(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2")
		if _, err := k.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		w.net.Silence("alice", "r1")
		w.net.Silence("r1", "alice")
		w.pass(100 * time.Second)
		for name, r := range f.routers {
			if left := r.circuits.left(); left != nothing {
				t.Errorf("%s keeps %s", name, left)
			}
		}
		w.net.Resume("alice", "r1")
		w.net.Resume("r1", "alice")
		k.conn.Abort(ginnel.PeerReset, "")
	})
}

// Without any controller what runs goes on, and what is asked is answered at once.
func TestL69_ControlPlaneGone(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		w.net.SetLatency("alice", "r1", 100*time.Millisecond)
		f.server(echo)
		p := f.program("alice", "r1")
		k, idle := p.dial("c-1", "r1", "r2"), p.dial("c-2", "r1", "r2")
		stop := k.flood(20 * time.Millisecond)
		w.net.Cut("c1", "")
		for range 10 {
			<-time.After(time.Second)
		}
		dial, err := pki.Sign(p.holder.Load(), wire.DomainDial, &wire.Dial{Audience: &wire.Audience{Controller: "c1"}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = p.request(&wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: dial}}})
		if !errors.Is(err, ginnel.ControllerUnavailable) || time.Since(start) > 150*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		stop()
		w.pass(10 * time.Minute)
		if _, err := idle.conn.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(idle.conn, make([]byte, 1)); err != nil {
			t.Errorf("a circuit that was idle for ten minutes: %v", err)
		}
		idle.conn.Abort(ginnel.PeerReset, "")
	})
}

// A program that starts anew has nothing to do with the circuits of the one before.
func TestProgramReborn(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2")
		if _, err := k.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		p.conn.Close(nil)
		w.pass(time.Second)
		p.boot = "another"
		p.connect("r1")
		if n := f.routers["r1"].Status().Circuits; n != 0 {
			t.Errorf("%d rows", n)
		}
		if e := f.endpointsOf("r1")["c-1/false"]; e == nil {
			t.Error("the client's end was never reported")
		}
		w.pass(time.Second)
		if e := f.endpointsOf("r1")["c-1/false"]; !e.GetRemoved() {
			t.Error("the client's end is still reported")
		}
		k.conn.Abort(ginnel.PeerReset, "")
	})
}

// Who asks for a path to a host's end that was reset there, or never used, is told by the
// host, for as long as its client may ask; and by nobody when that is gone as well.
func TestHostsEndThatIsGone(t *testing.T) {
	for name, ends := range map[string]func(f *fabric, alice, bob *program, id string) (ticket *wire.Signed){
		"reset": func(f *fabric, alice, bob *program, id string) *wire.Signed {
			k := alice.dialHost(bob, id, "c-1", "r1", "r2")
			if _, err := k.conn.Write([]byte("x")); err != nil {
				f.w.t.Fatal(err)
			}
			f.w.pass(time.Second)
			bob.mu.Lock()
			defer bob.mu.Unlock()
			for _, r := range bob.rows {
				r.stream.Reset(ginnel.PeerReset, "enough")
			}
			return k.ticket
		},
		"never used": func(f *fabric, alice, bob *program, id string) *wire.Signed {
			a := alice.ask("c-1", "identity", "bob", id, "r2")
			res := f.egressOnly(a, "c-1", 1, func(e *wire.Egress) { e.Terminator = id })
			if res.GetFailure() != nil {
				f.w.t.Fatal(res.GetFailure())
			}
			return a.ticket
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				f := newFabric(w, [2]string{"r1", "r2"})
				alice, bob := f.program("alice", "r1"), f.program("bob", "r2")
				bob.hosts(echoCircuit)
				id, err := bob.bind("r2", asIs)
				if err != nil {
					t.Fatal(err)
				}
				ticket := ends(f, alice, bob, id)
				w.pass(20 * time.Second) // the rows are gone
				if n := f.routers["r2"].Status().Circuits; n != 0 {
					t.Errorf("%d rows", n)
				}
				bob.host = func(*wire.HostDial) *wire.HostDialResult {
					return &wire.HostDialResult{Failure: wire.FailureOf(ginnel.Errorf(ginnel.PeerReset, "it has ended"))}
				}
				wants := func(number uint32, want ginnel.Code) {
					t.Helper()
					res := f.egressOnly(&asking{ticket: ticket}, "c-1", 256*number+1, func(e *wire.Egress) { e.Resume = true })
					if got := ginnel.Code(res.GetFailure().GetCode()); got != want {
						t.Errorf("resume %d: got %v %q, want %v", number, got, res.GetFailure().GetMessage(), want)
					}
				}
				wants(1, ginnel.PeerReset)
				bob.conn.Close(nil)
				w.pass(time.Second)
				wants(2, ginnel.PeerDetached)
				bob.connect("r2")
				wants(3, ginnel.PeerReset)
				w.pass(detachTime)
				wants(4, ginnel.PeerDetached)
			})
		})
	}
}

// A circuit that is resumed again and again has one path where they all pass, and not all
// of them until each is idle.
func TestResumedCircuitLeavesItsOldPaths(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2")
		for i := range 6 {
			if _, err := k.conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(k.conn, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for name, r := range f.routers {
				if n := r.Status().Circuits; n != 1 {
					t.Errorf("%s has %d rows after %d resumes", name, n, i)
				}
			}
			if err := k.resume("r1", "r2"); err != nil {
				t.Fatal(err)
			}
		}
		k.conn.Abort(ginnel.PeerReset, "")
	})
}
