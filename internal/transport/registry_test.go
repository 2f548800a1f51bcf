// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// side is one end of a ctrl channel as a process would hold it.
type side struct {
	peer    ginnel.Peer // the other end
	self    string
	decides bool
	reg     *Registry[string]
	wg      sync.WaitGroup

	mu  sync.Mutex
	ups []*Conn // accepted, in order
}

func newSide(self string, peer ginnel.Peer, decides bool) *side {
	return &side{self: self, peer: peer, decides: decides, reg: NewRegistry[string](100)}
}

// serve greets over c and runs it.
func (s *side) serve(c *Conn) error {
	own := hello("n")
	g := Greeting{Hello: own, Self: s.self}
	if s.decides {
		own.Connection = s.reg.Next()
		g.Decide = func(ctx context.Context, _ *wire.Hello) *wire.Verdict {
			return s.reg.Admit(ctx, s.peer.ID, own.GetConnection(), c)
		}
	}
	a, err := c.Handshake(context.Background(), g)
	if err != nil {
		return err
	}
	if !s.decides && !s.reg.Adopt(s.peer.ID, a.Hello.GetBoot(), a.Connection, c) {
		return c.Err()
	}
	s.mu.Lock()
	s.ups = append(s.ups, c)
	s.mu.Unlock()
	return c.Run(context.Background(), receiver{})
}

// both joins two sides over a new connection.
func both(t testing.TB, n *pipe.Network, a, b *side) {
	ca, cb := plainPair(t, n, ginnel.Peer{Role: b.peer.Role, ID: a.self}, ginnel.Peer{Role: a.peer.Role, ID: b.self}, wire.ALPNCtrl)
	a.wg.Go(func() { _ = a.serve(ca) })
	b.wg.Go(func() { _ = b.serve(cb) })
}

func (s *side) current() (*Conn, uint64) { return s.reg.Get(s.peer.ID) }

func (s *side) stop() {
	s.mu.Lock()
	for _, c := range s.ups {
		c.Close(nil)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func TestL17_SimultaneousDials(t *testing.T) {
	interleavings := 10000
	if raceEnabled { // make test runs all of them without the detector, too
		interleavings = 200
	}
	for seed := range interleavings {
		synctest.Test(t, func(t *testing.T) { simultaneous(t, uint64(seed)) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// simultaneous lets two to four connections come up within a few milliseconds
// of each other, dialed from either end, over a path with some latency.
func simultaneous(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(17, seed))
	n := pipe.New()
	n.SetLatency("c", "r", time.Duration(rng.IntN(4))*time.Millisecond)
	c := newSide("c", router("r"), true)
	r := newSide("r", controller("c"), false)
	for range 2 + rng.IntN(3) {
		if rng.IntN(2) == 0 {
			both(t, n, c, r)
		} else {
			both(t, n, r, c)
		}
		pass(time.Duration(rng.IntN(3000)) * time.Microsecond)
	}
	pass(time.Second)
	synctest.Wait()
	first, number := c.current()
	if first == nil {
		t.Fatal("no connection remains")
	}
	if _, theirs := r.current(); theirs != number {
		t.Fatalf("the controller holds %d, the router %d", number, theirs)
	}
	pass(time.Minute)
	synctest.Wait()
	if again, _ := c.current(); again != first || first.Err() != nil {
		t.Fatalf("closed later: %v", first.Err())
	}
	up := 0
	for _, s := range []*side{c, r} {
		for _, conn := range s.ups {
			if conn.Err() == nil {
				up++
			}
		}
	}
	if up != 2 {
		t.Fatalf("%d ends are up, want 2", up)
	}
	c.stop()
	r.stop()
}

func TestAdmitWhileHolderIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		c := newSide("c", router("r"), true)
		r := newSide("r", controller("c"), false)
		both(t, n, c, r)
		synctest.Wait()
		old, number := c.current()
		if old == nil || number == 0 {
			t.Fatal("not up")
		}
		// The old path is dead in one direction; the router dials over another.
		n.Silence("c", "r")
		other := pipe.New()
		start := time.Now()
		both(t, other, r, c)
		pass(pingTimeout - time.Millisecond)
		if conn, _ := c.current(); conn != old {
			t.Error("replaced before the ping's time was over")
		}
		pass(time.Millisecond)
		synctest.Wait()
		conn, now := c.current()
		if conn == old || conn == nil || now <= number {
			t.Fatalf("after %v: still connection %d", time.Since(start), now)
		}
		if _, theirs := r.current(); theirs != now {
			t.Errorf("the controller holds %d, the router %d", now, theirs)
		}
		if !errors.Is(old.Err(), ErrSilent) {
			t.Errorf("old one ended with %v", old.Err())
		}
		n.Resume("c", "r")
		synctest.Wait()
		c.stop()
		r.stop()
		synctest.Wait()
		if c.reg.Len() != 0 || r.reg.Len() != 0 {
			t.Errorf("%d and %d keys are left", c.reg.Len(), r.reg.Len())
		}
	})
}

// The other end takes a newer number and refuses an older one that comes late.
func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := NewRegistry[string](0)
		n := pipe.New()
		var conns []*Conn
		for range 4 {
			a, b := plainPair(t, n, controller("c"), router("r"), wire.ALPNCtrl)
			conns = append(conns, b)
			defer a.Close(nil)
		}
		for i, step := range []struct {
			boot   string
			number uint64
			want   bool
		}{{"b1", 5, true}, {"b1", 4, false}, {"b1", 6, true}, {"b2", 1, true}} {
			if got := reg.Adopt("c", step.boot, step.number, conns[i]); got != step.want {
				t.Errorf("step %d: got %v", i, got)
			}
			synctest.Wait()
		}
		if c, number := reg.Get("c"); c != conns[3] || number != 1 {
			t.Errorf("holds %d", number)
		}
		for i, want := range []bool{true, true, true, false} {
			if got := conns[i].Err() != nil; got != want {
				t.Errorf("connection %d ended: %v, want %v", i, got, want)
			}
		}
		conns[3].Close(nil)
		synctest.Wait()
		if reg.Len() != 0 {
			t.Error("a key without a connection is left")
		}
	})
}
