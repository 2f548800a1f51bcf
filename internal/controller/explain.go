// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of an explanation, which rides in one message.
const (
	maxExplainCandidates = 32
	maxExplainPhases     = 48
	// maxAnswer is the room that a DialResponse may take before its explanation
	// is left out.
	maxAnswer = wire.MaxPayload - 64
)

// timing is when the steps of a request took place.
type timing struct {
	received time.Time // the request
	genuine  time.Time // its signature was verified
	verified time.Time // it was found good
	begun    time.Time // its turn came
	chose    time.Time // the choice of the last attempt began
	sent     time.Time // the Routes of the last attempt were on their way
	// attempts are the beginnings of the attempts, in their order.
	attempts []time.Time
}

// explain tells how the outcome came about.
func explain(tm timing, tried []circuit.Tried) *wire.Explain {
	x := &wire.Explain{}
	x.Phases = append(x.Phases, tm.phase("verify", tm.received, tm.verified, "signature, audience, policy")...)
	x.Phases = append(x.Phases, tm.phase("queue", tm.verified, tm.begun, "waited for its turn")...)
	for i, t := range tried {
		if i == len(tried)-1 {
			x.Phases = append(x.Phases, tm.phase("decide", tm.chose, tm.sent, "candidates, path, costs, ticket of the last attempt")...)
		}
		if i < len(tm.attempts) {
			x.Phases = append(x.Phases, tm.attempt(i, t)...)
		}
	}
	x.Phases = x.Phases[:min(len(x.Phases), maxExplainPhases)]
	if len(tried) > 0 {
		last := tried[len(tried)-1]
		x.Candidates = explainCandidates(last.Candidates, last.Terminator)
		x.Hops = explainHops(last)
	}
	return x
}

// phase gives the phase from start to end, or none where the request did not come
// that far.
func (tm timing) phase(name string, start, end time.Time, detail string) []*wire.Phase {
	if start.IsZero() || end.Before(start) {
		return nil
	}
	return []*wire.Phase{tm.span(name, start, end.Sub(start), detail)}
}

func (tm timing) span(name string, start time.Time, took time.Duration, detail string) *wire.Phase {
	return &wire.Phase{Name: name, StartNs: start.Sub(tm.received).Nanoseconds(), TookNs: took.Nanoseconds(), Detail: detail}
}

// attempt gives the phase of an attempt and those of its routes.
func (tm timing) attempt(i int, t circuit.Tried) []*wire.Phase {
	start := tm.attempts[i]
	outcome := "up"
	if t.Code != ginnel.CodeOK {
		outcome = t.Code.String() + ": " + t.Cause
	}
	name := fmt.Sprintf("attempt %d", i+1)
	phases := []*wire.Phase{tm.span(name, start, time.Duration(t.Took), fmt.Sprintf("%s over %v: %s", t.Terminator, t.Path, outcome))}
	for _, r := range t.Routes {
		detail := "answered"
		took := r.Answered
		switch {
		case r.Answered == 0 && r.Confirmed == 0 && !r.OK:
			detail, took = "no answer", time.Duration(t.Took)
		case r.Answered == 0 && !r.OK:
			detail, took = "confirmed, no result", time.Duration(t.Took)
		case !r.OK:
			detail = "refused"
		}
		phases = append(phases, tm.span(fmt.Sprintf("%s route %s", name, r.Router), start, took, detail))
	}
	return phases
}

func explainCandidates(costed []terminator.Costed, chosen ginnel.TerminatorID) []*wire.Candidate {
	var out []*wire.Candidate
	for _, c := range costed {
		mine := c.Terminator.ID == chosen
		if len(out) >= maxExplainCandidates && !mine {
			continue
		}
		out = append(out, &wire.Candidate{
			Terminator:  string(c.Terminator.ID),
			Precedence:  c.Terminator.Precedence.String(),
			StaticCost:  int64(c.Static),
			DynamicCost: int64(c.Dynamic.Add(c.InFlight)),
			PathCost:    int64(c.Path),
			TotalCost:   int64(c.Total),
			Chosen:      mine,
		})
	}
	return out
}

// explainHops gives the routers of the path: the first has no link and costs
// nothing.
func explainHops(t circuit.Tried) []*wire.Hop {
	out := make([]*wire.Hop, len(t.Path))
	for i, id := range t.Path {
		out[i] = &wire.Hop{Router: string(id)}
		if i > 0 && i <= len(t.Hops) {
			h := t.Hops[i-1]
			out[i].Link, out[i].Cost = string(h.Link), int64(h.LinkCost.Add(h.RouterCost))
		}
		if i < len(t.Routes) {
			out[i].RouteNs = t.Routes[i].Answered.Nanoseconds()
		}
	}
	return out
}

// fit leaves out of an answer what is only there to be read, where it does not
// fit a message.
func fit(r *wire.DialResponse) {
	if proto.Size(r) > maxAnswer {
		r.Explain = nil
	}
}
