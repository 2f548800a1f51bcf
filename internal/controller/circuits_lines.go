// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
)

// How many set-ups out of one router may wait for routers to give a sign, which
// each has to do within a second: what a burst of dials asks of routers at once
// must be less than they can do in that time. It grows while they are quick and
// shrinks while they are not.
const (
	leastWindow = 16
	firstWindow = 64
	mostWindow  = 256
	quickSign   = circuit.ConfirmTime / 4
)

// line is where the set-ups of one router wait to begin: identities take turns,
// so that the burst of one does not make the others wait for all of it.
type line struct {
	unconfirmed int
	window      int
	waiting     map[ginnel.IdentityID][]*setup
	turns       []ginnel.IdentityID // of those in waiting, the next one first
}

// queue puts a set-up into its router's line.
func (cs *circuits) queue(s *setup) {
	l := cs.line(s.from.id())
	s.waits = true
	client := s.decision.client
	if len(l.waiting[client]) == 0 {
		l.turns = append(l.turns, client)
	}
	l.waiting[client] = append(l.waiting[client], s)
}

func (cs *circuits) line(id ginnel.RouterID) *line {
	l := cs.lines[id]
	if l == nil {
		l = &line{window: firstWindow, waiting: make(map[ginnel.IdentityID][]*setup)}
		cs.lines[id] = l
	}
	return l
}

// leaveLine takes out a set-up that begins, or ends before it has begun.
func (cs *circuits) leaveLine(s *setup) {
	if !s.waits {
		return
	}
	s.waits = false
	l, client := cs.lines[s.from.id()], s.decision.client
	l.waiting[client] = slices.DeleteFunc(l.waiting[client], func(other *setup) bool { return other == s })
	if len(l.waiting[client]) == 0 {
		delete(l.waiting, client)
		l.turns = slices.DeleteFunc(l.turns, func(id ginnel.IdentityID) bool { return id == client })
	}
}

// next gives the set-up whose turn it is, and its identity's turn to the next
// one; nil: nobody waits.
func (l *line) next() *setup {
	if len(l.turns) == 0 {
		return nil
	}
	client := l.turns[0]
	l.turns = append(l.turns[1:], client)
	return l.waiting[client][0]
}

// serveLines begins set-ups that wait, as many as may run.
func (cs *circuits) serveLines() {
	for id, l := range cs.lines {
		for l.unconfirmed < l.window {
			s := l.next()
			if s == nil {
				break
			}
			cs.start(s)
		}
		if l.unconfirmed == 0 && len(l.turns) == 0 {
			delete(cs.lines, id)
		}
	}
}

// start begins a set-up that has waited.
func (cs *circuits) start(s *setup) {
	cs.leaveLine(s)
	s.timing.begun = time.Now()
	cs.step(s, circuit.Begin{})
}

// countOpening keeps the count of its router's unconfirmed set-ups.
func (cs *circuits) countOpening(s *setup) {
	opening := s.machine.Unconfirmed()
	if opening == s.opening {
		return
	}
	s.opening = opening
	l := cs.line(s.from.id())
	if opening {
		l.unconfirmed++
		s.opened = time.Now()
		return
	}
	l.unconfirmed--
	switch took := time.Since(s.opened); {
	case took < quickSign:
		l.window = min(l.window+1, mostWindow)
	case took >= 2*quickSign:
		l.window = max(l.window-1, leastWindow)
	}
}
