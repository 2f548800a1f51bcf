// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

// Tried is an attempt with all there is to say about it.
type Tried struct {
	ginnel.Attempt // Code is ginnel.CodeOK when it succeeded
	Generation     uint32
	Hops           []path.Hop
	Candidates     []terminator.Costed
	Routes         []RouteTime // in the order of the path
}

// RouteTime says when a router answered, counted from the start of its attempt.
type RouteTime struct {
	Router    ginnel.RouterID
	Confirmed time.Duration // first sign; 0: none
	Answered  time.Duration // result; 0: none
	OK        bool
}

// attempt is one try to route a path.
type attempt struct {
	generation uint32
	choice     Choice
	began      time.Time
	confirmBy  time.Time // every router has given a sign
	deadline   time.Time // every router has given its result
	legs       []leg     // one for each router of the path, in its order
	answer     []byte
}

// leg is a router's part of an attempt.
type leg struct {
	state               legState
	confirmed, answered time.Time
}

// legState is what a router has said about its part.
type legState uint8

const (
	legSent      legState = iota // nothing yet
	legConfirmed                 // it works on it
	legRouted                    // success
	legRefused                   // refused, or the Route was never sent: holds no row
	legGone                      // the router is no longer connected
)

// leg gives the index of a router's leg, or -1.
func (a *attempt) leg(id ginnel.RouterID) int {
	return slices.Index(a.choice.Path.Routers, id)
}

func (a *attempt) egress(i int) bool { return i == len(a.legs)-1 }

// has reports whether some leg is in the state.
func (a *attempt) has(state legState) bool {
	return slices.ContainsFunc(a.legs, func(l leg) bool { return l.state == state })
}

// due gives the earliest instant at which waiting is over.
func (a *attempt) due() time.Time {
	if a.has(legSent) {
		return a.confirmBy
	}
	return a.deadline
}

// routes gives what is to be sent at the start: first to the egress router, which has
// most to do.
func (a *attempt) routes() []Action {
	var out []Action
	for i, id := range slices.Backward(a.choice.Path.Routers) {
		r := SendRoute{
			Router: id, Generation: a.generation, Path: a.choice.Path, Position: i,
			Terminator: a.choice.Terminator, Deadline: a.deadline,
		}
		if a.egress(i) {
			r.Connect = a.deadline.Sub(a.began) - ConnectMargin
		}
		out = append(out, r)
	}
	return out
}

// unroutes gives what takes back every route that may have left a row.
func (a *attempt) unroutes() []Action {
	var out []Action
	for i, id := range a.choice.Path.Routers {
		if s := a.legs[i].state; s != legRefused && s != legGone {
			out = append(out, SendUnroute{Router: id, Generation: a.generation})
		}
	}
	return out
}

// silent gives the routers in the state, and the text that names them.
func (a *attempt) silent(state legState, waited time.Duration, what string) ([]ginnel.RouterID, string) {
	var ids []ginnel.RouterID
	var names []string
	for i, l := range a.legs {
		if l.state == state {
			ids = append(ids, a.choice.Path.Routers[i])
			names = append(names, string(a.choice.Path.Routers[i]))
		}
	}
	noun := "router"
	if len(names) > 1 {
		noun = "routers"
	}
	return ids, fmt.Sprintf("%s %s did not %s within %v", noun, strings.Join(names, ", "), what, waited.Round(time.Millisecond))
}

// tried gives the record of the attempt; cause is nil when it succeeded.
func (a *attempt) tried(now time.Time, cause *ginnel.DialError) Tried {
	t := Tried{
		Attempt: ginnel.Attempt{
			Terminator: a.choice.Terminator.ID,
			Path:       a.choice.Path.Routers,
			Links:      a.choice.Path.Links,
			Took:       ginnel.Duration(now.Sub(a.began)),
		},
		Generation: a.generation,
		Hops:       a.choice.Hops,
		Candidates: a.choice.Candidates,
	}
	if cause != nil {
		t.Code, t.Cause = cause.Code, cause.Message
	}
	for i, l := range a.legs {
		r := RouteTime{Router: a.choice.Path.Routers[i], OK: l.state == legRouted}
		if !l.confirmed.IsZero() {
			r.Confirmed = l.confirmed.Sub(a.began)
		}
		if !l.answered.IsZero() {
			r.Answered = l.answered.Sub(a.began)
		}
		t.Routes = append(t.Routes, r)
	}
	return t
}
