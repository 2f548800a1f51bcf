// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"container/heap"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/wire"
)

// setup is one dial or resume that was found good, until it is answered. It
// belongs to the loop from the moment it is requested.
type setup struct {
	from     outlet // over which the request came
	request  uint64 // its id there
	decision decision
	service  ginnel.Service
	query    terminator.Query
	early    []byte // bytes for the far end
	explain  bool
	deadline time.Time
	resume   *resumption // nil: it is a dial
	timing   timing

	machine *circuit.Setup
	due     time.Time // the machine's deadline; while it is in deadlines, at place
	place   int
	waits   bool                // in its router's line
	opening bool                // counted there, as unconfirmed
	opened  time.Time           // since when it is opening
	counted ginnel.TerminatorID // in inFlight; empty: not counted
	attempt attempt
	// routed is where a Route was sent that may have to be taken back.
	routed map[routeKey]struct{}
}

// attempt is what all Routes of one attempt have in common.
type attempt struct {
	over   []outlet // the channels of the path's routers
	labels []rowLabels
	ticket *wire.Signed
}

// routeKey names a Route of a set-up.
type routeKey struct {
	router     ginnel.RouterID
	generation uint32
}

func (s *setup) key() setupKey {
	return setupKey{s.decision.circuit, s.resumeNumber()}
}

func (s *setup) resumeNumber() uint32 {
	if s.resume == nil {
		return 0
	}
	return s.resume.number
}

// begin starts a set-up.
func (cs *circuits) begin(s *setup) {
	s.timing.begun = time.Now()
	if err := cs.name(s); err != nil {
		err.Circuit = s.decision.circuit
		cs.ended(s, outcome{code: err.Code, cause: err.Message, err: cs.reply(s, failed(err))})
		return
	}
	s.routed = make(map[routeKey]struct{})
	s.machine = circuit.New(circuit.Request{
		Circuit: s.decision.circuit, Deadline: s.deadline, Attempts: s.service.Attempts, Resume: s.resumeNumber(),
	}, circuit.ChooserFunc(func(x circuit.Exclusions) (circuit.Choice, *ginnel.DialError) { return cs.choose(s, x) }))
	s.due = s.deadline.Add(time.Millisecond - circuit.LeastAttempt) // from when on no attempt begins
	cs.setups[s.key()] = s
	cs.requests[requestKey{s.from, s.request}] = s
	heap.Push(&cs.deadlines, s)
	cs.queue(s)
}

// name sees that no other circuit has the id that a dial was given, and that a
// resume is the only one of its number.
func (cs *circuits) name(s *setup) *ginnel.DialError {
	if s.resume != nil {
		if cs.setups[s.key()] != nil {
			return ginnel.Errorf(ginnel.StaleGeneration, "resume %d of circuit %s is being set up already", s.resume.number, s.decision.circuit)
		}
		return nil
	}
	for range 8 {
		if id := s.decision.circuit; id != "" && cs.setups[s.key()] == nil && len(cs.underlay.endpoints(id)) == 0 {
			return nil
		}
		id, err := newCircuitID(cs.ids)
		if err != nil {
			return ginnel.Errorf(ginnel.IDGenerationError, "%v", err)
		}
		s.decision.circuit = id
	}
	return ginnel.Errorf(ginnel.IDGenerationError, "every id drawn is in use")
}

// circuitIDLetters are those of a circuit's id: 10 of them make 50 bits.
const circuitIDLetters = "abcdefghijklmnopqrstuvwxyz234567"

func newCircuitID(random io.Reader) (ginnel.CircuitID, error) {
	var b [10]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw a circuit id: %w", err)
	}
	for i := range b {
		b[i] = circuitIDLetters[b[i]%byte(len(circuitIDLetters))]
	}
	return ginnel.CircuitID(b[:]), nil
}

// choose is the choice for one attempt, out of what is known now.
func (cs *circuits) choose(s *setup, x circuit.Exclusions) (circuit.Choice, *ginnel.DialError) {
	s.timing.chose = time.Now()
	cs.trees = treesOf(cs.underlay.topology(), cs.trees)
	candidates := cs.candidates(s)
	for i := range candidates {
		id := candidates[i].ID
		candidates[i].InFlight = cs.inFlight.of(id)
		if id == s.counted { // by the attempt that has just failed
			candidates[i].InFlight--
		}
	}
	choice, err := circuit.Choose(cs.trees, s.from.id(), candidates, s.query, x, cs.rng)
	if through := cs.underlay.throughQuiesced(); err != nil && s.resume != nil && through != cs.trees.Snapshot() {
		// What runs stays, if need be through a router that takes nothing new.
		cs.crossing = treesOf(through, cs.crossing)
		choice, err = circuit.Choose(cs.crossing, s.from.id(), candidates, s.query, x, cs.rng)
	}
	if err != nil && !cs.underlay.ready() {
		err = circuit.Unsure(err, "the controller has just started and does not know all routers yet")
	}
	if err != nil && !cs.c.current() {
		err = circuit.Unsure(err, cs.c.staleness())
	}
	if err != nil && s.resume != nil {
		err = s.resume.detached(err)
	}
	return choice, err
}

// treesOf gives the trees of a snapshot: known, if they are of it.
func treesOf(now *path.Snapshot, known *path.Trees) *path.Trees {
	if known == nil || known.Snapshot() != now {
		return path.NewTrees(now)
	}
	return known
}

// candidates gives where the circuit may end: for a resume, where it does.
func (cs *circuits) candidates(s *setup) []terminator.Candidate {
	if s.resume != nil {
		return []terminator.Candidate{{Terminator: s.resume.end}}
	}
	return cs.underlay.candidates(cs.c.rules(), s.service)
}

// step gives the machine of a set-up an event and does what it asks for.
func (cs *circuits) step(s *setup, ev circuit.Event) {
	for todo := s.machine.Step(time.Now(), ev); len(todo) > 0; {
		action := todo[0]
		todo = todo[1:]
		switch a := action.(type) {
		case circuit.SendRoute:
			if unsent := cs.sendRoute(s, a); unsent != nil {
				todo = append(slices.DeleteFunc(todo, ofGeneration(a.Generation)), s.machine.Step(time.Now(), *unsent)...)
			}
		case circuit.SendUnroute:
			cs.sendUnroute(s, a.Router, a.Generation, ginnel.CodeOK)
		case circuit.Respond:
			cs.respond(s, a)
		case circuit.Fail:
			cs.fail(s, a)
		}
	}
	cs.count(s)
	if s.timing.sent.Before(s.timing.chose) {
		s.timing.sent = time.Now()
	}
	if !s.machine.Done() {
		cs.deadlines.moved(s)
	}
}

// ofGeneration tells the Routes of an attempt, which are not to be sent once
// one of them could not be.
func ofGeneration(generation uint32) func(circuit.Action) bool {
	return func(a circuit.Action) bool {
		r, ok := a.(circuit.SendRoute)
		return ok && r.Generation == generation
	}
}

// count keeps inFlight by where the set-up has an attempt now.
func (cs *circuits) count(s *setup) {
	cs.countOpening(s)
	at, _ := s.machine.InFlight()
	if at == s.counted {
		return
	}
	cs.inFlight.move(s.counted, at)
	s.counted = at
}

// respond ends a set-up whose circuit is up.
func (cs *circuits) respond(s *setup, a circuit.Respond) {
	r := &wire.DialResponse{
		Circuit:    string(s.decision.circuit),
		Generation: a.Generation,
		Ticket:     s.attempt.ticket,
		Early:      a.Answer,
		Path:       wire.Strings(a.Path.Routers),
		Links:      wire.Strings(a.Path.Links),
	}
	if s.query.Strategy == ginnel.Sticky {
		r.Sticky = string(a.Terminator.ID)
	}
	if s.explain {
		r.Explain = explain(s.timing, a.Tried)
		fit(r)
	}
	end := outcome{code: ginnel.CodeOK, terminator: a.Terminator.ID, peer: a.Terminator.Peer(), tried: a.Tried}
	if err := cs.reply(s, &wire.Message{Body: &wire.Message_DialResponse{DialResponse: r}}); err != nil {
		// The client will never hear of its circuit.
		for _, id := range a.Path.Routers {
			cs.sendUnroute(s, id, a.Generation, ginnel.Cancelled)
		}
		end.code, end.err = ginnel.Cancelled, err
	}
	cs.meter.phases.observe(s.timing, a.Tried, time.Now())
	cs.ended(s, end)
}

// fail ends a set-up that came to nothing.
func (cs *circuits) fail(s *setup, a circuit.Fail) {
	err := cs.reply(s, failed(a.Err))
	if err != nil {
		bare := *a.Err
		bare.Attempts = nil // a long list does not fit a message
		err = cs.reply(s, failed(&bare))
	}
	cs.ended(s, outcome{code: a.Err.Code, cause: a.Err.Message, tried: a.Tried, err: err})
}

func failed(err *ginnel.DialError) *wire.Message {
	return &wire.Message{Body: &wire.Message_Failure{Failure: failure(err)}}
}

// reply answers the request of a set-up. The error is that its channel would
// not take the answer.
func (cs *circuits) reply(s *setup, m *wire.Message) error {
	m.ReplyTo = s.request
	return s.from.send(m)
}

// ended takes a set-up that was answered out of the books.
func (cs *circuits) ended(s *setup, o outcome) {
	cs.gate.leave(s.from.id())
	cs.gate.leaveClient(s.decision.client)
	cs.leaveLine(s)
	if s.machine != nil {
		delete(cs.setups, s.key())
		if key := (requestKey{s.from, s.request}); cs.requests[key] == s {
			delete(cs.requests, key)
		}
		heap.Remove(&cs.deadlines, s.place)
	}
	cs.record(s, o)
}
