// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/wire"
)

var _ api.Circuits = (*circuits)(nil)

func TestCircuitsOfReports(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		r := w.dial(nil).response()
		id := r.GetCircuit()
		if _, err := w.cs.GetCircuit(t.Context(), id); !isNotFound(err) {
			t.Errorf("before it is reported: %v", err)
		}
		host := w.report(r.GetTicket(), "C", true, 1, 0)
		host.sent, host.received = 20, 10
		c, err := w.cs.GetCircuit(t.Context(), id)
		if err != nil || c.BytesSent != 10 || c.BytesReceived != 20 {
			t.Errorf("out of the host's end: %+v, %v", c, err)
		}
		client := w.report(r.GetTicket(), "A", false, 258, 0)
		client.sent, client.received = 11, 22
		client.path, client.links = []ginnel.RouterID{"A", "D", "C"}, []ginnel.LinkID{"A/D/0", "C/D/0"}
		c, err = w.cs.GetCircuit(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if c.Service != "web" || c.Client != "alice" || c.Terminator != "t1" || c.Peer.String() != "router/C" || c.Generation != 258 ||
			len(c.Path) != 3 || c.Path[1] != "D" || c.BytesSent != 11 || c.BytesReceived != 22 || !c.Since.Equal(time.Now()) {
			t.Errorf("got %+v", c)
		}
		if err := w.cs.DeleteCircuit(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for router, n := range map[ginnel.RouterID]int{"A": 1, "B": 0, "C": 1} {
			if got := w.nodes[router].revoked(id); got != n {
				t.Errorf("router %s was told %d times, want %d", router, got, n)
			}
		}
		if err := w.cs.DeleteCircuit(t.Context(), "none"); !isNotFound(err) {
			t.Errorf("no such circuit: %v", err)
		}
	})
}

func isNotFound(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Kind == ginnel.KindNotFound
}

func (r *fakeRouter) revoked(circuit string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if v := m.GetRevoke(); v != nil && v.GetCircuit() == circuit {
			n++
		}
	}
	return n
}

func TestListCircuits(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		for range 3 {
			w.c.fabric.listLocked(w.report(w.dial(nil).response().GetTicket(), "A", false, 1, 0))
		}
		list, err := w.cs.ListCircuits(t.Context())
		if err != nil || len(list) != 3 || list[0].ID >= list[1].ID || list[1].ID >= list[2].ID {
			t.Errorf("got %v, %v", list, err)
		}
	})
}

// Labels are given in the order granted, each once, all or none.
func TestLabels(t *testing.T) {
	a, b := &fakeRouter{name: "A"}, &fakeRouter{name: "B"}
	var l labels
	l.grant(a, []uint32{0, 1, 2})
	l.grant(b, []uint32{11})
	rows, short := l.take([]outlet{a, b})
	want := []rowLabels{{downOut: 11, downIn: 1}, {upIn: 11, upOut: 1}}
	if short != "" || len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("got %v, %q", rows, short)
	}
	if _, short = l.take([]outlet{a, b}); short != "B" {
		t.Errorf("short of %q, want B", short)
	}
	l.grant(b, []uint32{12})
	if rows, _ = l.take([]outlet{b, a}); rows[0].downOut != 2 || rows[0].downIn != 12 {
		t.Errorf("got %v: the failed take has taken something", rows)
	}
	l.grant(a, make([]uint32, 10))
	for range 10 {
		l.grant(a, slicesOf(1, maxLabels))
	}
	if n := len(l.free[a]); n != maxLabels {
		t.Errorf("%d labels kept, at most %d", n, maxLabels)
	}
	l.gone(a)
	if len(l.free) != 1 {
		t.Error("an ended channel has labels")
	}
}

func slicesOf(value uint32, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// An answer that no message can carry is sent without its explanation.
func TestFit(t *testing.T) {
	r := &wire.DialResponse{Explain: &wire.Explain{Candidates: make([]*wire.Candidate, 0)}}
	fit(r)
	if r.Explain == nil {
		t.Error("a small one was left out")
	}
	r.Early = make([]byte, wire.MaxEarlyBack)
	for range maxExplainCandidates {
		r.Explain.Phases = append(r.Explain.Phases, &wire.Phase{Detail: string(make([]byte, 400))})
	}
	if fit(r); r.Explain != nil {
		t.Error("a large one was left in")
	}
}
