// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func (w *circuitWorld) lined() (unconfirmed, waiting int) {
	synctest.Wait()
	for _, l := range w.cs.lines {
		unconfirmed += l.unconfirmed
		for _, of := range l.waiting {
			waiting += len(of)
		}
	}
	return unconfirmed, waiting
}

// A burst of dials asks routers for no more at once than they can do in time, and
// leaves nothing behind, whether dials succeed, are given up or run out of time.
func TestBurstStandsInLine(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		for _, n := range w.nodes {
			n.set(silent)
			n.grant(4096)
		}
		var calls []*call
		for i := range 4 * firstWindow {
			calls = append(calls, w.dial(func(d *wire.Dial) { d.DeadlineMs = uint32(900 + 100*(i%2)) }))
		}
		<-time.After(100 * time.Millisecond)
		unconfirmed, waiting := w.lined()
		if unconfirmed != firstWindow || waiting != 3*firstWindow {
			t.Errorf("%d unconfirmed, %d waiting", unconfirmed, waiting)
		}
		gone := calls[len(calls)-1]
		w.cs.cancel(gone.at, &wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: gone.id}}})
		gone.failure(ginnel.Cancelled)
		late := 0
		for _, c := range calls {
			switch code := ginnel.Code(c.answer().GetFailure().GetCode()); code {
			case ginnel.DeadlineExceeded:
				late++
			case ginnel.RouterResponseTimeout, ginnel.Cancelled:
			default:
				t.Errorf("got %v", code)
			}
		}
		if late == 0 {
			t.Error("nobody in the line ran out of time")
		}
		synctest.Wait()
		if unconfirmed, waiting := w.lined(); unconfirmed+waiting != 0 || len(w.cs.lines) != 0 {
			t.Errorf("%d unconfirmed, %d waiting are left", unconfirmed, waiting)
		}
		if w.cs.gate.len() != 0 || len(w.cs.gate.ofClient) != 0 {
			t.Errorf("the gate counts %d, %v", w.cs.gate.len(), w.cs.gate.ofClient)
		}
		for _, n := range w.nodes {
			n.set(agree)
		}
		w.dial(nil).response()
	})
}

// atR1 is a channel that is never used.
type atR1 struct{}

func (atR1) id() ginnel.RouterID      { return "r1" }
func (atR1) send(*wire.Message) error { return nil }

// Identities take turns: the burst of one does not make another wait for its end.
func TestIdentitiesTakeTurns(t *testing.T) {
	l := &line{waiting: make(map[ginnel.IdentityID][]*setup)}
	cs := &circuits{lines: map[ginnel.RouterID]*line{"r1": l}}
	put := func(client ginnel.IdentityID, n int) {
		for range n {
			cs.queue(&setup{from: atR1{}, decision: decision{client: client}})
		}
	}
	put("flood", 5)
	put("alice", 2)
	var order []ginnel.IdentityID
	for s := l.next(); s != nil; s = l.next() {
		cs.leaveLine(s)
		order = append(order, s.decision.client)
	}
	want := "[flood alice flood alice flood flood flood]"
	if got := wire.Strings(order); len(got) != 7 || "["+strings.Join(got, " ")+"]" != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if len(l.waiting) != 0 {
		t.Errorf("%d identities are left", len(l.waiting))
	}
}
