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

// How many set-ups are remembered after their end, and how many requests that
// were refused before anything was tried: those anybody can make.
const (
	maxRecent  = 4096
	maxRefused = 512
)

// finished is what is remembered of a set-up: as much as an explanation shows,
// put into words only when somebody asks.
type finished struct {
	circuit ginnel.CircuitID
	service ginnel.ServiceID
	client  ginnel.IdentityID
	ingress ginnel.RouterID
	kind    string // api.EventDial, EventResume, EventEnded
	resume  uint32 // its number
	carries ginnel.Protocol
	timing  timing
	took    time.Duration
	outcome outcome
	// Of a circuit that has ended.
	path           []ginnel.RouterID
	sent, received uint64
}

// recent remembers the last set-ups that ended, whatever became of them. Methods
// may be called from any goroutine.
type recent struct {
	mu      sync.Mutex
	tried   ring
	refused ring
}

// ring holds what came last.
type ring struct {
	all  []finished
	next int // place of the oldest, once it is full
}

func (r *ring) put(f finished, most int) {
	if len(r.all) < most {
		r.all = append(r.all, f)
		return
	}
	r.all[r.next] = f
	r.next = (r.next + 1) % most
}

// of gives what is there of a circuit, the oldest first.
func (r *ring) of(id ginnel.CircuitID) (out []finished) {
	for i := range r.all {
		if f := &r.all[(r.next+i)%len(r.all)]; f.circuit == id {
			out = append(out, *f)
		}
	}
	return out
}

// put remembers a set-up.
func (r *recent) put(f finished) {
	f.outcome.tried = lean(f.outcome.tried)
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.outcome.refused {
		r.refused.put(f, maxRefused)
		return
	}
	r.tried.put(f, maxRecent)
}

// remember notes how a request ended, for those who ask later and for those who
// watch. What never got a circuit's id can only be watched.
func (cs *circuits) remember(s *setup, o outcome) {
	f := finished{
		circuit: s.decision.circuit, service: s.decision.service, client: s.decision.client, ingress: s.from.id(),
		kind: api.EventDial, resume: s.resumeNumber(), carries: cmp.Or(s.decision.protocol, ginnel.TCP), timing: s.timing, took: time.Since(s.timing.received), outcome: o,
	}
	if s.resume != nil {
		f.kind = api.EventResume
	}
	if f.circuit != "" {
		cs.recent.put(f)
	}
	cs.watchers.publish(f.event)
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
	all := append(r.tried.of(id), r.refused.of(id)...)
	slices.SortStableFunc(all, func(a, b finished) int { return a.timing.received.Add(a.took).Compare(b.timing.received.Add(b.took)) })
	return all
}

// explanation gives a set-up as the API shows it.
func (f finished) explanation() api.Explanation {
	e := api.Explanation{
		Event: f.kind, BytesSent: f.sent, BytesReceived: f.received, Circuit: f.circuit, Service: f.service, Client: f.client, Ingress: f.ingress, Resume: f.resume, Protocol: f.carries,
		At: f.timing.received, Took: ginnel.Duration(f.took), Code: f.outcome.code, Cause: f.outcome.cause,
		Terminator: f.outcome.terminator, Attempts: []ginnel.Attempt{}, Weighed: explain(f.timing, f.outcome.tried).Weighed(),
	}
	if f.outcome.peer.ID != "" {
		e.Peer = f.outcome.peer.String()
	}
	if f.outcome.err != nil && e.Cause == "" {
		e.Cause = f.outcome.err.Error()
	}
	if f.kind == api.EventEnded {
		e.Path = f.path
	}
	for _, t := range f.outcome.tried {
		e.Attempts = append(e.Attempts, t.Attempt)
		e.Path, e.Links = t.Path, t.Links
	}
	return e
}

// event gives it as a line of the circuit log.
func (f finished) event() api.CircuitEvent {
	e := f.explanation()
	return api.CircuitEvent{
		At: e.At.Add(f.took), Event: e.Event, Circuit: e.Circuit, Service: e.Service, Client: e.Client, Ingress: e.Ingress,
		Terminator: e.Terminator, Peer: e.Peer, Code: e.Code, Cause: e.Cause, Attempts: e.Attempts, Path: e.Path,
		Duration: e.Took, BytesSent: e.BytesSent, BytesReceived: e.BytesReceived,
	}
}
