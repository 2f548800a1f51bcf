// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

// route names a Route that was sent.
type route struct {
	router     ginnel.RouterID
	generation uint32
}

// run drives a set-up with random events and keeps book of what routers hold.
type run struct {
	t     *rapid.T
	st    *story
	now   time.Time
	limit time.Time
	max   int

	sent    []route
	held    map[route]bool // may have a row
	heard   map[route]bool // gave a sign, so it was sent
	ok      map[route]bool // answered with success
	paths   map[string]bool
	respond *Respond
	fail    *Fail
	last    uint32
}

func drawStory(t *rapid.T) *story {
	st := &story{}
	names := "ABCDEF"[:rapid.IntRange(1, 6).Draw(t, "routers")]
	for _, r := range names {
		st.routers = append(st.routers, path.Router{ID: ginnel.RouterID(r), Connected: true})
	}
	letter := rapid.IntRange(0, len(names)-1)
	for i := range rapid.IntRange(0, 12).Draw(t, "links") {
		a, b := names[letter.Draw(t, "a")], names[letter.Draw(t, "b")]
		st.links = append(st.links, ginnel.Link{
			ID: ginnel.LinkID(fmt.Sprintf("%c%c%d", a, b, i)), A: ginnel.RouterID(a), B: ginnel.RouterID(b),
			StaticCost: ginnel.Units(rapid.Int64Range(0, 5).Draw(t, "cost")), Measured: true, Up: true,
		})
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "terminators") {
		st.candidates = append(st.candidates, terminator.Candidate{Terminator: ginnel.Terminator{
			ID: ginnel.TerminatorID(fmt.Sprintf("t%d", i)), Router: ginnel.RouterID(names[letter.Draw(t, "egress")]),
			Precedence: ginnel.Precedence(rapid.IntRange(0, 2).Draw(t, "precedence")),
		}})
	}
	return st
}

func TestSetupInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{
			t: t, st: drawStory(t), now: zero,
			held: map[route]bool{}, heard: map[route]bool{}, ok: map[route]bool{}, paths: map[string]bool{},
			limit: zero.Add(time.Duration(rapid.IntRange(0, 12000).Draw(t, "deadline ms")) * time.Millisecond),
			max:   rapid.IntRange(1, 5).Draw(t, "attempts"),
		}
		r.st.setup = New(Request{
			Circuit: "c", Deadline: r.limit, Attempts: r.max,
			Resume: rapid.Uint32Range(0, 3).Draw(t, "resume"),
		}, r.st)
		r.step(Begin{})
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			r.wait()
			r.step(r.event())
		}
		for !r.st.setup.Done() {
			r.now = r.st.setup.Deadline()
			r.step(Tick{})
		}
		r.end()
	})
}

// wait lets time pass, to the deadline at most: the loop keeps it.
func (r *run) wait() {
	if rapid.Bool().Draw(r.t, "at once") {
		return
	}
	next := r.now.Add(time.Duration(rapid.IntRange(0, 1500).Draw(r.t, "wait ms")) * time.Millisecond)
	if at := r.st.setup.Deadline(); !at.IsZero() && next.After(at) {
		next = at
	}
	r.now = next
}

func (r *run) event() Event {
	kind := rapid.IntRange(0, 19).Draw(r.t, "kind")
	if len(r.sent) == 0 || kind == 0 {
		return Tick{}
	}
	if kind == 1 && rapid.IntRange(0, 5).Draw(r.t, "really") == 0 {
		return Cancelled{}
	}
	// Mostly about the attempt that runs: the routes sent last.
	back := min(len(r.sent), rapid.IntRange(1, 8).Draw(r.t, "back"))
	about := r.sent[len(r.sent)-back]
	switch {
	case kind < 4:
		delete(r.held, about)
		code := rapid.SampledFrom([]ginnel.Code{
			ginnel.RouterErrConnRefused, ginnel.RouterErrInvalidLinkDestination,
			ginnel.RouterErrResourcesNotAvailable, ginnel.CodeOK,
		}).Draw(r.t, "code")
		return RouteAnswered{Router: about.router, Generation: about.generation, Err: &ginnel.DialError{Code: code}}
	case kind == 4 && !r.heard[about]:
		delete(r.held, about)
		return SendFailed{Router: about.router, Generation: about.generation}
	case kind == 5:
		for held := range r.held {
			if held.router == about.router {
				delete(r.held, held)
			}
		}
		return RouterGone{Router: about.router}
	case kind == 6 && len(r.st.links) > 0:
		return LinkGone{Link: r.st.links[rapid.IntRange(0, len(r.st.links)-1).Draw(r.t, "link")].ID}
	case kind < 10:
		r.heard[about] = true
		return Connecting{Router: about.router, Generation: about.generation}
	}
	r.held[about], r.ok[about], r.heard[about] = true, true, true
	return RouteAnswered{Router: about.router, Generation: about.generation}
}

func (r *run) step(ev Event) {
	for _, a := range r.st.setup.Step(r.now, ev) {
		r.check(a)
	}
	at := r.st.setup.Deadline()
	if !at.IsZero() && (!at.After(r.now) || at.After(r.limit)) {
		r.t.Fatalf("at %v: deadline %v, limit %v", r.now.Sub(zero), at.Sub(zero), r.limit.Sub(zero))
	}
	if _, flying := r.st.setup.InFlight(); flying == r.st.setup.Done() || at.IsZero() != r.st.setup.Done() {
		r.t.Fatalf("done %v, in flight %v, deadline %v", r.st.setup.Done(), flying, at)
	}
}

func (r *run) check(a Action) {
	switch a := a.(type) {
	case SendRoute:
		if r.respond != nil || r.fail != nil {
			r.t.Fatalf("%+v after the end", a)
		}
		if a.Position == 0 {
			key := fmt.Sprint(a.Terminator.ID, a.Path.Routers, a.Path.Links)
			if a.Generation <= r.last || r.paths[key] {
				r.t.Fatalf("generation %d after %d, or %s again", a.Generation, r.last, key)
			}
			r.last, r.paths[key] = a.Generation, true
		}
		egress := a.Position == len(a.Path.Routers)-1
		if egress != (a.Connect > 0) || egress && a.Connect < LeastAttempt-ConnectMargin || a.Deadline.After(r.limit) {
			r.t.Fatalf("times of %+v", a)
		}
		rt := route{a.Router, a.Generation}
		r.sent = append(r.sent, rt)
		r.held[rt] = true
	case SendUnroute:
		if r.respond != nil && a.Generation == r.respond.Generation {
			r.t.Fatalf("%+v of the circuit that is up", a)
		}
		delete(r.held, route{a.Router, a.Generation})
	case Respond:
		r.respond = &a
		for _, id := range a.Path.Routers {
			if !r.ok[route{id, a.Generation}] {
				r.t.Fatalf("responded without %s", id)
			}
		}
		if len(a.Tried) != len(r.paths) {
			r.t.Fatalf("%d attempts told, %d made", len(a.Tried), len(r.paths))
		}
	case Fail:
		r.fail = &a
		if a.Err.Circuit != "c" || a.Err.Code == ginnel.CodeOK || a.Err.Message == "" || len(a.Err.Attempts) != len(r.paths) {
			r.t.Fatalf("failed with %+v after %d attempts", a.Err, len(r.paths))
		}
	}
}

// end checks that one thing came out, in time, and that no row is left over.
func (r *run) end() {
	if (r.respond == nil) == (r.fail == nil) {
		r.t.Fatalf("responded %v, failed %v", r.respond, r.fail)
	}
	if len(r.paths) > r.max {
		r.t.Fatalf("%d attempts, at most %d", len(r.paths), r.max)
	}
	for rt := range r.held {
		if r.respond == nil || rt.generation != r.respond.Generation {
			r.t.Fatalf("%v is left over", rt)
		}
	}
}
