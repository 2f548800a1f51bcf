// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// The times of a set-up. Each outer layer waits longer than the one inside it,
// so the innermost ends first and the caller hears the real cause.
const (
	// ConfirmTime is how long a router may take to give a sign.
	ConfirmTime = time.Second
	// ConnectMargin is by how much the connection behind the egress router has
	// to end before its attempt does.
	ConnectMargin = 300 * time.Millisecond
	// LayerMargin is what each layer outside adds to its own deadline.
	LayerMargin = 200 * time.Millisecond
	// LeastAttempt is the least time in which an attempt makes sense.
	LeastAttempt = 500 * time.Millisecond
	// DefaultAttempts is the number of attempts in all where none is configured.
	DefaultAttempts = 3
)

// attemptsPerResume is the number of generations that belong to one resume number.
const attemptsPerResume = 256

// Request is what a set-up is for.
type Request struct {
	Circuit  ginnel.CircuitID
	Deadline time.Time // when the client gives up
	Attempts int       // most attempts; 0: DefaultAttempts
	// Resume number that the client has signed, below 1<<24; 0 is the dial.
	Resume uint32
}

// Generation gives the generation of an attempt, counted from 1, of a resume
// number; 0 is the dial's.
func Generation(resume uint32, attempt int) uint32 {
	return resume*attemptsPerResume + uint32(attempt)
}

// ResumeNumber gives the resume number that a generation belongs to.
func ResumeNumber(generation uint32) uint32 { return generation / attemptsPerResume }

// MaxResume is the greatest resume number whose generations are numbers.
const MaxResume = 1<<24 - 1

// Setup is the set-up of one circuit. Its invariants:
//
//  1. Exactly one Respond or Fail ends it, at the request's deadline at the
//     latest, if Deadline is kept.
//  2. At the end every Route sent belongs to the one attempt that succeeded, or
//     was unrouted, refused or never left; what turns out to have succeeded
//     after all is unrouted when that is heard.
//  3. An answer counts for the attempt whose generation it carries, no other.
//  4. After a step, Deadline is zero or later than now.
type Setup struct {
	request Request
	chooser Chooser

	state state
	// attempt that runs; once done, the one that succeeded or nil.
	attempt  *attempt
	number   int // of the attempt, from 1
	excluded Exclusions
	touched  []ginnel.TerminatorID // terminators of the attempts so far
	tried    []Tried
	cause    *ginnel.DialError // why the last attempt failed
}

type state uint8

const (
	isNew state = iota
	isTrying
	isDone
)

// New gives a set-up that waits for Begin.
func New(r Request, c Chooser) *Setup {
	if r.Attempts <= 0 {
		r.Attempts = DefaultAttempts
	}
	r.Attempts = min(r.Attempts, attemptsPerResume-1)
	return &Setup{request: r, chooser: c}
}

// Deadline gives when a Tick is due; zero: no Tick is needed.
func (s *Setup) Deadline() time.Time {
	if s.state != isTrying {
		return time.Time{}
	}
	return s.attempt.due()
}

// Done reports whether there was a Respond or Fail. What is done may be
// dropped: an answer that comes later was unrouted before.
func (s *Setup) Done() bool { return s.state == isDone }

// InFlight gives the terminator at which an attempt runs, for the cost of
// set-ups in flight; false when none runs.
func (s *Setup) InFlight() (ginnel.TerminatorID, bool) {
	if s.state != isTrying {
		return "", false
	}
	return s.attempt.choice.Terminator.ID, true
}

// Unconfirmed reports whether an attempt runs of which a router has given no sign
// yet. That ends within ConfirmTime.
func (s *Setup) Unconfirmed() bool { return s.state == isTrying && s.attempt.has(legSent) }

// Uses reports whether an attempt runs over a link.
func (s *Setup) Uses(link ginnel.LinkID) bool {
	return s.state == isTrying && s.attempt.choice.Path.HasLink(link)
}

// Step applies one event and gives what is to be done, in order. An answer that
// comes with its deadline still counts.
func (s *Setup) Step(now time.Time, ev Event) []Action {
	out := s.apply(now, ev)
	if s.state == isTrying && !now.Before(s.attempt.due()) {
		out = append(out, s.overdue(now)...)
	}
	return out
}

func (s *Setup) apply(now time.Time, ev Event) []Action {
	switch ev := ev.(type) {
	case Begin:
		if s.state == isNew {
			return s.next(now)
		}
	case RouteAnswered:
		return s.answered(now, ev)
	case Connecting:
		if i := s.current(ev.Router, ev.Generation); i >= 0 {
			s.confirm(now, i, legConfirmed)
		}
	case SendFailed:
		if i := s.current(ev.Router, ev.Generation); i >= 0 {
			return s.notSent(now, i, ev.Err)
		}
	case RouterGone:
		return s.routerGone(now, ev.Router)
	case LinkGone:
		if s.state == isTrying && s.attempt.choice.Path.HasLink(ev.Link) {
			s.excluded.Links = append(s.excluded.Links, ev.Link)
			return s.failed(now, ginnel.Errorf(ginnel.PathMissingLink, "link %s is down", ev.Link))
		}
	case Cancelled:
		if s.state != isDone {
			return s.cancel(now)
		}
	case Tick: // Step looks at the time after every event
	}
	return nil
}

// current gives the leg that an answer is about when the attempt runs that it
// names, and -1 otherwise.
func (s *Setup) current(router ginnel.RouterID, generation uint32) int {
	if s.state != isTrying || generation != s.attempt.generation {
		return -1
	}
	return s.attempt.leg(router)
}

// confirm notes a sign of life; a leg's state only ever moves on.
func (s *Setup) confirm(now time.Time, i int, to legState) {
	l := &s.attempt.legs[i]
	l.state = max(l.state, to)
	if l.confirmed.IsZero() {
		l.confirmed = now
	}
	if to != legConfirmed && l.answered.IsZero() {
		l.answered = now
	}
}

func (s *Setup) answered(now time.Time, ev RouteAnswered) []Action {
	i := s.current(ev.Router, ev.Generation)
	switch {
	case i < 0:
		return s.late(ev)
	case ev.Err != nil:
		s.confirm(now, i, legRefused)
		s.exclude(i, ev)
		cause := named(ev.Err, ginnel.RouterErrGeneric, "router %s refused", ev.Router)
		if i == 0 && cause.Code == ginnel.Cancelled {
			// The client's own router knows that nobody waits any more.
			return append(s.drop(now, cause), s.fail(cause))
		}
		return s.failed(now, cause)
	}
	s.confirm(now, i, legRouted)
	if s.attempt.egress(i) {
		s.attempt.answer = ev.Answer
	}
	if slices.ContainsFunc(s.attempt.legs, func(l leg) bool { return l.state != legRouted }) {
		return nil
	}
	return s.respond(now)
}

// late unroutes the success of an attempt that has failed meanwhile.
func (s *Setup) late(ev RouteAnswered) []Action {
	first := Generation(s.request.Resume, 1)
	ours := ev.Generation >= first && ev.Generation < first+uint32(s.number)
	live := s.attempt != nil && s.attempt.generation == ev.Generation
	if !ours || live || ev.Err != nil {
		return nil
	}
	return []Action{SendUnroute{Router: ev.Router, Generation: ev.Generation}}
}

func (s *Setup) notSent(now time.Time, i int, err *ginnel.DialError) []Action {
	if s.attempt.legs[i].state != legSent {
		return nil
	}
	router := s.attempt.choice.Path.Routers[i]
	s.attempt.legs[i].state = legRefused
	s.excluded.Routers = append(s.excluded.Routers, router)
	return s.failed(now, named(err, ginnel.RouterResponseTimeout, "router %s: the route could not be sent", router))
}

func (s *Setup) routerGone(now time.Time, router ginnel.RouterID) []Action {
	if s.state != isTrying {
		return nil
	}
	i := s.attempt.leg(router)
	if i < 0 {
		return nil
	}
	s.attempt.legs[i].state = legGone
	s.excluded.Routers = append(s.excluded.Routers, router)
	return s.failed(now, ginnel.Errorf(ginnel.RouterResponseTimeout, "router %s is no longer connected", router))
}

// exclude leaves out of the next attempts what a refusal was about: a link when
// it says so, the terminator when the egress router refused, else the router.
func (s *Setup) exclude(i int, ev RouteAnswered) {
	links := s.attempt.choice.Path.Links
	switch {
	case (ev.Err.Code == ginnel.RouterErrInvalidLinkDestination || ev.Err.Code == ginnel.PathMissingLink) && len(links) > 0:
		link := ev.Link
		if !slices.Contains(links, link) {
			link = links[min(i, len(links)-1)] // the one towards the egress
		}
		s.excluded.Links = append(s.excluded.Links, link)
	case s.attempt.egress(i):
		s.excluded.Terminators = append(s.excluded.Terminators, s.attempt.choice.Terminator.ID)
	default:
		s.excluded.Routers = append(s.excluded.Routers, ev.Router)
	}
}

// overdue fails an attempt that has waited long enough.
func (s *Setup) overdue(now time.Time) []Action {
	a := s.attempt
	if a.has(legSent) {
		ids, text := a.silent(legSent, a.confirmBy.Sub(a.began), "answer")
		s.excluded.Routers = append(s.excluded.Routers, ids...)
		return s.failed(now, ginnel.Errorf(ginnel.RouterResponseTimeout, "%s", text))
	}
	// A router that gave a sign is alive: what hangs is behind it.
	_, text := a.silent(legConfirmed, a.deadline.Sub(a.began), "finish")
	s.excluded.Terminators = append(s.excluded.Terminators, a.choice.Terminator.ID)
	return s.failed(now, ginnel.Errorf(ginnel.RouterResponseTimeout, "%s", text))
}

// failed ends the attempt and starts the next one where that makes sense.
func (s *Setup) failed(now time.Time, cause *ginnel.DialError) []Action {
	s.cause = cause
	out := s.drop(now, cause)
	// A router that knows a newer generation will refuse the next one as well.
	if cause.Code == ginnel.StaleGeneration {
		return append(out, s.fail(cause))
	}
	return append(out, s.next(now)...)
}

// drop records the attempt as failed and unroutes it.
func (s *Setup) drop(now time.Time, cause *ginnel.DialError) []Action {
	s.tried = append(s.tried, s.attempt.tried(now, cause))
	out := s.attempt.unroutes()
	s.attempt = nil
	return out
}

// next starts an attempt, or ends the set-up when there can be none.
func (s *Setup) next(now time.Time) []Action {
	remaining := s.request.Deadline.Sub(now)
	switch {
	case s.number == s.request.Attempts:
		return []Action{s.fail(s.cause)}
	case remaining < LeastAttempt:
		return []Action{s.fail(s.causeOr(ginnel.Errorf(ginnel.DeadlineExceeded, "%v left of the deadline: too little for an attempt", max(0, remaining))))}
	}
	choice, err := s.chooser.Choose(s.excluded)
	if err != nil {
		return []Action{s.fail(s.causeOr(err))}
	}
	limit := s.limit(remaining, choice)
	s.number++
	s.state = isTrying
	s.touched = append(s.touched, choice.Terminator.ID)
	s.attempt = &attempt{
		generation: Generation(s.request.Resume, s.number),
		choice:     choice,
		began:      now,
		confirmBy:  now.Add(min(ConfirmTime, limit)),
		deadline:   now.Add(limit),
		legs:       make([]leg, len(choice.Path.Routers)),
	}
	return s.attempt.routes()
}

// limit gives the time of the next attempt: an equal share of what remains for
// each that may still be made, but enough for one to make sense.
func (s *Setup) limit(remaining time.Duration, choice Choice) time.Duration {
	untried := 0
	for _, c := range choice.Candidates {
		if !slices.Contains(s.touched, c.Terminator.ID) {
			untried++
		}
	}
	parts := min(s.request.Attempts-s.number, max(1, untried))
	return max(remaining/time.Duration(parts), LeastAttempt)
}

// causeOr gives the cause of the last attempt that was made: it tells more than
// that nothing is left to try.
func (s *Setup) causeOr(err *ginnel.DialError) *ginnel.DialError {
	if s.cause != nil {
		return s.cause
	}
	return err
}

func (s *Setup) cancel(now time.Time) []Action {
	cause := ginnel.Errorf(ginnel.Cancelled, "the client gave up")
	var out []Action
	if s.state == isTrying {
		out = s.drop(now, cause)
	}
	return append(out, s.fail(cause))
}

func (s *Setup) respond(now time.Time) []Action {
	s.state = isDone
	s.tried = append(s.tried, s.attempt.tried(now, nil))
	return []Action{Respond{
		Terminator: s.attempt.choice.Terminator,
		Path:       s.attempt.choice.Path,
		Generation: s.attempt.generation,
		Answer:     s.attempt.answer,
		Tried:      s.tried,
	}}
}

func (s *Setup) fail(cause *ginnel.DialError) Action {
	s.state = isDone
	err := *cause
	err.Circuit = s.request.Circuit
	err.Attempts = nil
	for _, t := range s.tried {
		err.Attempts = append(err.Attempts, t.Attempt)
	}
	return Fail{Err: &err, Tried: s.tried}
}

// named gives err with a code and a text, where a router left one out.
func named(err *ginnel.DialError, code ginnel.Code, format string, router ginnel.RouterID) *ginnel.DialError {
	out := ginnel.Errorf(code, format, router)
	if err == nil {
		return out
	}
	if err.Code != ginnel.CodeOK {
		out.Code = err.Code
	}
	if err.Message != "" {
		out.Message = err.Message
	}
	out.RetryAfter = err.RetryAfter
	return out
}
