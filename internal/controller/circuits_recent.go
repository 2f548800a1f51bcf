// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

// maxRecent is how many set-ups are remembered after their end.
const maxRecent = 4096

// finished is what is remembered of a set-up: as much as an explanation shows,
// put into words only when somebody asks.
type finished struct {
	circuit ginnel.CircuitID
	service ginnel.ServiceID
	client  ginnel.IdentityID
	ingress ginnel.RouterID
	resume  uint32 // 0: a dial
	carries ginnel.Protocol
	timing  timing
	took    time.Duration
	outcome outcome
}

// recent remembers the last set-ups that ended, whatever became of them. Methods
// may be called from any goroutine.
type recent struct {
	mu   sync.Mutex
	ring []finished
	next int // place of the oldest, once the ring is full
}

// put remembers a set-up. One that never had a circuit's id cannot be asked for.
func (r *recent) put(s *setup, o outcome) {
	if s.decision.circuit == "" {
		return
	}
	o.tried = lean(o.tried)
	f := finished{
		circuit: s.decision.circuit, service: s.decision.service, client: s.decision.client, ingress: s.from.id(),
		resume: s.resumeNumber(), carries: cmp.Or(s.decision.protocol, ginnel.TCP), timing: s.timing, took: time.Since(s.timing.received), outcome: o,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, f)
		return
	}
	r.ring[r.next] = f
	r.next = (r.next + 1) % maxRecent
}

// lean gives attempts without the candidates that no explanation shows, so that
// a service of many terminators does not stay in memory.
func lean(tried []circuit.Tried) []circuit.Tried {
	out := slices.Clone(tried)
	for i := range out {
		t := &out[i]
		if i < len(out)-1 {
			t.Candidates, t.Hops = nil, nil
			continue
		}
		t.Candidates = slices.Collect(func(yield func(terminator.Costed) bool) {
			for n, c := range tried[i].Candidates {
				if (n < maxExplainCandidates || c.Terminator.ID == t.Terminator) && !yield(c) {
					return
				}
			}
		})
	}
	return out
}

// of gives what is remembered of a circuit, the oldest first.
func (r *recent) of(id ginnel.CircuitID) []finished {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []finished
	for i := range r.ring {
		if f := &r.ring[(r.next+i)%len(r.ring)]; f.circuit == id {
			out = append(out, *f)
		}
	}
	return out
}

// explanation gives a set-up as the API shows it.
func (f finished) explanation() api.Explanation {
	e := api.Explanation{
		Circuit: f.circuit, Service: f.service, Client: f.client, Ingress: f.ingress, Resume: f.resume, Protocol: f.carries,
		At: f.timing.received, Took: ginnel.Duration(f.took), Code: f.outcome.code, Cause: f.outcome.cause,
		Terminator: f.outcome.terminator, Attempts: []ginnel.Attempt{}, Weighed: explain(f.timing, f.outcome.tried).Weighed(),
	}
	if f.outcome.peer.ID != "" {
		e.Peer = f.outcome.peer.String()
	}
	if f.outcome.err != nil && e.Cause == "" {
		e.Cause = f.outcome.err.Error()
	}
	for _, t := range f.outcome.tried {
		e.Attempts = append(e.Attempts, t.Attempt)
		e.Path, e.Links = t.Path, t.Links
	}
	return e
}
