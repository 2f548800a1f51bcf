// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"container/heap"
	"context"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/wire"
)

// outlet is a ctrl channel as set-ups use it. Its methods never wait.
type outlet interface {
	id() ginnel.RouterID
	send(m *wire.Message) error
}

func (ch *channel) id() ginnel.RouterID        { return ch.router }
func (ch *channel) send(m *wire.Message) error { return ch.conn.SendControl(m) }

// underlay is what set-ups see of the routers. Its methods never wait.
type underlay interface {
	topology() *path.Snapshot
	// throughQuiesced is topology with paths that cross quiesced routers.
	throughQuiesced() *path.Snapshot
	candidates(rules, ginnel.Service) []terminator.Candidate
	endpoints(ginnel.CircuitID) []*endpointRow
	// outlet gives the ctrl channel of a router; nil: there is none.
	outlet(ginnel.RouterID) outlet
	ready() bool
}

// reported is the underlay out of what routers have reported.
type reported struct {
	*fabric
}

func (u reported) ready() bool { return u.c.Ready() }

func (u reported) outlet(id ginnel.RouterID) outlet {
	if ch := u.c.channels.get(id); ch != nil {
		return ch
	}
	return nil
}

// circuits sets up circuits; it keeps none once it is up. Requests are verified
// on goroutines of their ctrl channels; events go to the loop and never
// wait. The loop owns all set-ups, the trees of the topology, and one
// timer at the earliest deadline.
//
//  1. Every request is answered once, by a DialResponse or a Failure, unless
//     its channel has ended or the controller does.
//  2. setups, requests and deadlines hold the same set-ups: those admitted and
//     not ended.
//  3. Of the set-ups of a router at most its window wait for routers to give a
//     sign; the others stand in its line, each identity's in their order.
//  4. inFlight counts, for each terminator, the set-ups with an attempt there.
type circuits struct {
	c        *Controller
	underlay underlay
	labels   labels
	gate     gate
	inbox    inbox
	meter    circuitMeter
	recent   recent
	overs    overs
	inFlight flights
	ids      io.Reader // of circuits; read on any goroutine
	watchers watchers[api.CircuitEvent]

	// What follows is the loop's.
	rng       *rand.Rand
	setups    map[setupKey]*setup
	requests  map[requestKey]*setup
	deadlines deadlines
	lines     map[ginnel.RouterID]*line
	trees     *path.Trees // of the topology
	crossing  *path.Trees // of that through quiesced routers
}

// setupKey tells apart the set-ups that run for one circuit: the generations
// of their attempts belong to different resume numbers.
type setupKey struct {
	circuit ginnel.CircuitID
	resume  uint32
}

// requestKey names a request by the channel it came over.
type requestKey struct {
	from outlet
	id   uint64
}

func newCircuits(c *Controller, rng *rand.Rand) *circuits {
	cs := &circuits{
		c:        c,
		underlay: reported{c.fabric},
		inbox:    inbox{ready: newSignal()},
		rng:      rng,
		ids:      crand.Reader,
		setups:   make(map[setupKey]*setup),
		requests: make(map[requestKey]*setup),
		lines:    make(map[ginnel.RouterID]*line),
	}
	cs.meter = newCircuitMeter(c.metrics.registry, &cs.gate)
	return cs
}

// run is the goroutine of the set-ups.
func (cs *circuits) run(ctx context.Context) {
	defer cs.watchers.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-cs.inbox.ready:
		case <-timer.C:
		}
		for _, ev := range cs.inbox.take() {
			cs.handle(ev)
			cs.serveLines()
		}
		for s := cs.deadlines.due(time.Now()); s != nil; s = cs.deadlines.due(time.Now()) {
			if s.waits {
				cs.start(s) // which finds that its time is over
			} else {
				cs.step(s, circuit.Tick{})
			}
			cs.serveLines()
		}
		if len(cs.deadlines) == 0 {
			timer.Stop()
		} else {
			timer.Reset(time.Until(cs.deadlines[0].due))
		}
	}
}

// cancel ends the set-up of a request that is no longer waited for.
func (cs *circuits) cancel(ch outlet, m *wire.Message) {
	cs.inbox.put(requestCancelled{requestKey{ch, m.GetCancel().GetRequest()}})
}

// routeConnecting takes the sign of an egress router.
func (cs *circuits) routeConnecting(ch outlet, m *wire.Message) {
	cs.inbox.put(routeConfirmed{ch.id(), m.GetRouteConnecting()})
}

// routeResult takes a router's answer to a Route.
func (cs *circuits) routeResult(ch outlet, m *wire.Message) {
	r := m.GetRouteResult()
	if n := len(r.GetEarly()); n > wire.MaxEarlyBack {
		cs.c.faults.note(ch.id(), faultAnswer, fmt.Errorf("circuit %.64q: answer with %d bytes, at most %d", r.GetCircuit(), n, wire.MaxEarlyBack))
	}
	cs.inbox.put(routeAnswered{ch.id(), r})
}

// labelGrant takes labels that a router gives us for use.
func (cs *circuits) labelGrant(ch outlet, granted []uint32) { cs.labels.grant(ch, granted) }

// channelGone forgets what belonged to a ctrl channel. Nothing comes over it
// after that, but for a request that was just being verified: it cannot be answered.
func (cs *circuits) channelGone(ch outlet) {
	cs.labels.gone(ch)
	cs.inbox.put(channelEnded{ch})
}

// linkGone tells that a link is no longer up.
func (cs *circuits) linkGone(from ginnel.RouterID, id ginnel.LinkID) {
	cs.inbox.put(linkEnded{from, id})
}

// handle applies one event.
func (cs *circuits) handle(ev circuitEvent) {
	switch ev := ev.(type) {
	case requested:
		cs.begin(ev.setup)
	case requestCancelled:
		if s := cs.requests[ev.key]; s != nil {
			cs.step(s, circuit.Cancelled{})
		}
	case routeConfirmed:
		if s := cs.setupOf(ev.msg.GetCircuit(), ev.msg.GetGeneration()); s != nil {
			cs.step(s, circuit.Connecting{Router: ev.from, Generation: ev.msg.GetGeneration()})
		}
	case routeAnswered:
		if s := cs.setupOf(ev.msg.GetCircuit(), ev.msg.GetGeneration()); s != nil {
			cs.step(s, answerOf(ev.from, ev.msg))
		}
	case channelEnded:
		cs.channelEnded(ev.ch)
	case linkEnded:
		for _, s := range cs.those(func(s *setup) bool { return s.machine.Uses(ev.id) }) {
			cs.step(s, circuit.LinkGone{Link: ev.id})
		}
	}
}

// setupOf gives the set-up that an answer is about; nil when it has ended: then
// what the answer says was set up has been taken back, or is a circuit.
func (cs *circuits) setupOf(id string, generation uint32) *setup {
	return cs.setups[setupKey{ginnel.CircuitID(id), circuit.ResumeNumber(generation)}]
}

// answerOf gives a router's RouteResult as the machine takes it.
func answerOf(from ginnel.RouterID, r *wire.RouteResult) circuit.Event {
	ev := circuit.RouteAnswered{Router: from, Generation: r.GetGeneration(), Answer: r.GetEarly()}
	switch {
	case r.GetFailure() != nil:
		ev.Err = r.GetFailure().DialError()
	case len(ev.Answer) > wire.MaxEarlyBack:
		ev.Err = ginnel.Errorf(ginnel.RouterErrGeneric, "router %s answered with %d bytes, at most %d", from, len(ev.Answer), wire.MaxEarlyBack)
	}
	if ev.Err != nil {
		ev.Answer = nil
	}
	return ev
}

// channelEnded ends the set-ups that nobody can be answered of, and fails the
// attempts whose Routes went over the channel.
func (cs *circuits) channelEnded(ch outlet) {
	for _, s := range cs.those(func(s *setup) bool { return s.from == ch || slices.Contains(s.attempt.over, ch) }) {
		if s.from == ch {
			cs.step(s, circuit.Cancelled{})
		} else {
			cs.step(s, circuit.RouterGone{Router: ch.id()})
		}
	}
}

// those gives the set-ups that are meant, in the order of their circuits.
func (cs *circuits) those(meant func(*setup) bool) []*setup {
	var list []*setup
	for _, s := range cs.deadlines {
		if meant(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *setup) int { return cmp.Compare(a.decision.circuit, b.decision.circuit) })
	return list
}

// deadlines is a heap of set-ups, the one that is due first on top. Those that
// wait for no instant do not exist: a set-up without a deadline has ended.
type deadlines []*setup

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].due.Before(d[j].due) }

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push adds a *setup at the end, for package heap.
func (d *deadlines) Push(x any) {
	s := x.(*setup)
	s.place = len(*d)
	*d = append(*d, s)
}

// Pop removes the last one, for package heap.
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	s := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return s
}

// due gives a set-up whose instant has come, or nil.
func (d deadlines) due(now time.Time) *setup {
	if len(d) == 0 || d[0].due.After(now) {
		return nil
	}
	return d[0]
}

func (d *deadlines) moved(s *setup) {
	if at := s.machine.Deadline(); !at.IsZero() && !at.Equal(s.due) {
		s.due = at
		heap.Fix(d, s.place)
	}
}
