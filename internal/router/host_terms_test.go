// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// A failure cost falls all the time, whenever it is reported and to whom: two
// controllers that heard of it at different times have the same.
func TestFailureCostFallsBetweenReports(t *testing.T) {
	inWorld(t, func(w *world) {
		c1, r := w.controller("c1"), w.router("r1")
		c1.dials("r1")
		ch := c1.channel("r1")
		ch.check(1, nil)
		w.pass(time.Second)
		term := r.circuits.terms.get("web-1")
		r.circuits.terms.failed(term)
		w.pass(time.Second)
		began := time.Now()
		first, at := ch.cost("web-1"), began
		w.pass(4 * time.Minute)
		c2 := w.controller("c2")
		c2.dials("r1")
		w.pass(time.Second)
		second, again := c2.channel("r1").cost("web-1"), time.Now()
		r.circuits.terms.opened(term) // which reports to both, and is worth a relief of 2
		w.pass(time.Second)
		for _, c := range []struct {
			name string
			load terminator.Load
			at   time.Time
			want float64
		}{
			{"heard at once", first, at, 12},
			{"heard late", second, again, 12},
			{"heard by the first of a success", ch.cost("web-1"), time.Now(), 10},
			{"heard by the second of a success", c2.channel("r1").cost("web-1"), time.Now(), 10},
		} {
			d := terminator.Reported(c.at, terminator.Load{FailureCost: c.load.FailureCost, FailureLeft: c.load.FailureLeft})
			if got := d.Cost(began.Add(4 * time.Minute)).Float(); got < c.want-0.1 || got > c.want+0.1 {
				t.Errorf("%s: after four minutes %.3f, want %.1f", c.name, got, c.want)
			}
			if got := d.Cost(began.Add(terminator.FailureMemory)); got != 0 {
				t.Errorf("%s: after ten minutes %v", c.name, got)
			}
		}
	})
}

// cost gives the load of a terminator as a controller was told it last.
func (ch *doubleChannel) cost(id string) (l terminator.Load) {
	synctest.Wait()
	for _, page := range ch.reported() {
		for _, t := range page.GetTerminators() {
			if t.GetId() == id {
				l = terminator.Load{
					Circuits: int(t.GetCircuits()), FailureCost: ginnel.Cost(t.GetFailureCost()),
					FailureLeft: time.Duration(t.GetFailureLeftMs()) * time.Millisecond,
				}
			}
		}
	}
	return l
}

// Ten circuits that were open and are closed leave the cost what it was. Of a
// terminator that is deleted under its circuits no counter is left, and one that is
// made again of the same id begins without.
func TestL37_DeletedTerminatorLeavesNoCounter(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r := w.controller("c1"), w.router("r1")
		c.dials("r1")
		ch := c.channel("r1")
		ch.check(1, nil)
		w.pass(time.Second)
		ts := &r.circuits.terms
		want := func(what string, load terminator.Load) {
			t.Helper()
			w.pass(time.Second)
			if got := ch.cost("web-1"); got != load {
				t.Errorf("%s: reported %+v, want %+v", what, got, load)
			}
		}
		old := ts.get("web-1")
		for range 10 {
			ts.opened(old)
		}
		want("ten open", terminator.Load{Circuits: 10})
		for range 10 {
			ts.closed(old)
		}
		want("ten closed", terminator.Load{})
		ts.opened(old)
		ch.send(&wire.RouterConfig{Revision: 2, Pages: 1})
		want("deleted with one open", terminator.Load{})
		if ts.get("web-1") != nil {
			t.Error("it is there still")
		}
		ch.check(3, nil)
		want("made again", terminator.Load{})
		ts.closed(old)
		ts.failed(old)
		want("what the old one hears of late", terminator.Load{})
		if len(ts.open) != 0 || len(r.report.loads) != 1 {
			t.Errorf("left: %d circuits, %d loads", len(ts.open), len(r.report.loads))
		}
	})
}

// A host that binds again, with a new certificate or to tell of its health, keeps
// the circuits it has, and they end under the new bind.
func TestBindAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		host := f.program("bob", "r1")
		host.hosts(echoCircuit)
		signed, err := pki.Sign(host.holder.Load(), wire.DomainBind, &wire.Bind{
			Network: testNetwork, Service: "web", Router: "r1", Precedence: uint32(ginnel.DefaultPrecedence), Nonce: blob(16),
		})
		if err != nil {
			t.Fatal(err)
		}
		bind := func(checked, unhealthy bool) (id string) {
			t.Helper()
			m, err := host.request(&wire.Message{Body: &wire.Message_BindRequest{BindRequest: &wire.BindRequest{
				Bind: signed, Checked: checked, Unhealthy: unhealthy,
			}}})
			if err != nil {
				t.Fatal(err)
			}
			w.pass(time.Second)
			return m.GetBindResponse().GetTerminator()
		}
		id := bind(true, false)
		want := func(what string, circuits uint32, unhealthy bool) {
			t.Helper()
			if s := f.termOf("r1", id); s.GetCircuits() != circuits || s.GetUnhealthy() != unhealthy || s.GetRemoved() {
				t.Errorf("%s: reported %v", what, s)
			}
		}
		k := f.program("alice", "r1").dialHost(host, id, "c-1", "r1")
		w.pass(time.Second)
		want("one circuit", 1, false)
		if again := bind(true, true); again != id {
			t.Errorf("bound again as %s, was %s", again, id)
		}
		want("unhealthy", 1, true)
		bind(true, false)
		want("healthy again", 1, false)
		bind(false, true)
		want("unhealthy without a check", 1, false)
		data := blob(1 << 10)
		sum, failed := k.exchange(data)
		f.wantSum(data, sum, failed, 10*time.Second)
		w.pass(30 * time.Second)
		want("the circuit is over", 0, false)
	})
}
