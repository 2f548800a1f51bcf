// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/wire"
)

// explained gives what the API tells of a circuit, of which want set-ups are
// remembered.
func (w *circuitWorld) explained(id string, want int) []api.Explanation {
	w.t.Helper()
	got, err := circuitsAdmin{w.c}.ExplainCircuit(w.t.Context(), id)
	if err != nil || len(got) != want {
		w.t.Fatalf("circuit %s: %d set-ups, %v; want %d", id, len(got), err, want)
	}
	return got
}

// A circuit can be explained afterwards as it is to a client that asks for it;
// its resumes follow.
func TestExplainCircuit(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.c.circuits = w.cs
		w.nodes["C"].set(after(3*time.Millisecond, agree))
		r := w.dial(func(d *wire.Dial) { d.Explain = true }).response()
		e := w.explained(r.GetCircuit(), 1)[0]
		if e.Service != "web" || e.Client != "alice" || e.Ingress != "A" || e.Code != ginnel.CodeOK || e.Cause != "" ||
			e.Terminator != "t1" || e.Peer != "router/C" || e.Took < ginnel.Duration(3*time.Millisecond) || len(e.Attempts) != 1 {
			t.Errorf("got %+v", e)
		}
		if !slices.Equal(e.Path, []ginnel.RouterID{"A", "B", "C"}) || !slices.Equal(wire.Strings(e.Links), r.GetLinks()) {
			t.Errorf("path %v, links %v", e.Path, e.Links)
		}
		x := r.GetExplain()
		if len(e.Candidates) != len(x.GetCandidates()) || len(e.Hops) != len(x.GetHops()) || len(e.Controller) != len(x.GetPhases()) {
			t.Fatalf("got %+v, the client %v", e, x)
		}
		for i, c := range x.GetCandidates() {
			if got := e.Candidates[i]; string(got.Terminator) != c.GetTerminator() || int64(got.Total) != c.GetTotalCost() || got.Chosen != c.GetChosen() {
				t.Errorf("candidate %+v, the client: %v", got, c)
			}
		}
		for i, h := range x.GetHops() {
			if got := e.Hops[i]; string(got.Router) != h.GetRouter() || int64(got.Cost) != h.GetCost() || int64(got.Route) != h.GetRouteNs() {
				t.Errorf("hop %+v, the client: %v", got, h)
			}
		}
		w.resume(r.GetTicket(), 1).response()
		if all := w.explained(r.GetCircuit(), 2); all[0].Resume != 0 || all[1].Resume != 1 || all[1].Code != ginnel.CodeOK {
			t.Errorf("after a resume: %+v", all)
		}
	})
}

// A dial that came to nothing is explained by the id that its error names.
func TestExplainFailedDial(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.c.circuits = w.cs
		w.nodes["C"].set(refuse(ginnel.RouterErrConnRefused))
		w.nodes["D"].set(refuse(ginnel.RouterErrConnRefused))
		failed := w.dial(nil).failure(ginnel.RouterErrConnRefused)
		e := w.explained(string(failed.Circuit), 1)[0]
		if e.Code != failed.Code || e.Cause != failed.Message || e.Peer != "" || len(e.Attempts) != len(failed.Attempts) {
			t.Errorf("got %+v, want %+v", e, failed)
		}
		last := failed.Attempts[len(failed.Attempts)-1]
		if !slices.Equal(e.Path, last.Path) || len(e.Hops) != len(last.Path) || len(e.Candidates) == 0 {
			t.Errorf("of the last attempt: %+v, want %+v", e, last)
		}
		unknown := w.dial(func(d *wire.Dial) { d.Service = "none" }).failure(ginnel.InvalidService)
		if e := w.explained(string(unknown.Circuit), 1)[0]; e.Code != ginnel.InvalidService || e.Cause != unknown.Message || len(e.Attempts) != 0 || len(e.Controller) != 0 {
			t.Errorf("a dial that was refused: %+v", e)
		}
		if _, err := (circuitsAdmin{w.c}).ExplainCircuit(t.Context(), "none"); kindOf(err) != ginnel.KindNotFound {
			t.Errorf("no circuit: %v", err)
		}
	})
}

// However many set-ups there are, the last ones are remembered, in their order.
func TestRecentIsBounded(t *testing.T) {
	var r recent
	id := func(n int) ginnel.CircuitID { return ginnel.CircuitID(fmt.Sprintf("c%d", n/2)) }
	for n := range maxRecent + 7 {
		r.put(finished{circuit: id(n), outcome: outcome{code: ginnel.Code(n % 2)}})
	}
	for range 3 * maxRefused { // what anybody can make us remember takes nothing else's place
		r.put(finished{circuit: "refused", outcome: outcome{refused: true}})
	}
	for n, want := range map[int][]ginnel.Code{0: nil, 6: {1}, 8: {0, 1}, maxRecent + 4: {0, 1}, maxRecent + 6: {0}} {
		var got []ginnel.Code
		for _, f := range r.of(id(n)) {
			got = append(got, f.outcome.code)
		}
		if !slices.Equal(got, want) {
			t.Errorf("circuit %s: %v, want %v", id(n), got, want)
		}
	}
	if len(r.tried.all) != maxRecent || len(r.of("refused")) != maxRefused {
		t.Errorf("%d are remembered, and %d refused", len(r.tried.all), len(r.refused.all))
	}
}

// Of a service with many terminators only those are kept that are shown.
func TestLean(t *testing.T) {
	var many []terminator.Costed
	for n := range 1000 {
		many = append(many, terminator.Costed{Terminator: ginnel.Terminator{ID: ginnel.TerminatorID(fmt.Sprint(n))}})
	}
	tried := []circuit.Tried{{Candidates: many}, {Attempt: ginnel.Attempt{Terminator: "500"}, Candidates: many}}
	got := lean(tried)
	if kept := got[1].Candidates; len(kept) != maxExplainCandidates+1 || kept[maxExplainCandidates].Terminator.ID != "500" || got[0].Candidates != nil {
		t.Errorf("kept %d and %d", len(got[0].Candidates), len(kept))
	}
	if a, b := explain(timing{}, got), explain(timing{}, tried); len(a.GetCandidates()) != len(b.GetCandidates()) {
		t.Errorf("%d are shown, want %d", len(a.GetCandidates()), len(b.GetCandidates()))
	}
	if len(tried[0].Candidates) != 1000 || lean(nil) != nil {
		t.Error("what was given has changed")
	}
}
