// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/health"
	"github.com/ginnel/ginnel/internal/wire"
)

// term is a terminator at this router: one that the router connects itself, or
// one that an SDK has bound over an edge connection. What is not marked otherwise
// does not change.
type term struct {
	id      ginnel.TerminatorID
	service ginnel.ServiceID
	address ginnel.Address    // empty: conn is set
	conn    *edgeConn         // of the host; nil: address is set
	bind    *wire.Signed      // of the host
	host    ginnel.IdentityID // likewise

	// What follows is under terms.mu.

	// dynamic is one for all binds of a terminator, of which the latest counts:
	// circuits that began under an earlier one end under it.
	dynamic   *terminator.Dynamic
	check     *ginnel.Check // by this router; nil: none
	uncheck   func()        // ends it; nil: none
	checked   bool          // by this router or the host
	unhealthy bool          // so says the check
}

// terms holds the terminators of this router and reports what they cost. Its
// methods may be called from any goroutine and never wait.
type terms struct {
	c       *circuits
	checker health.Checker

	mu   sync.Mutex
	rng  *rand.Rand // spreads checks
	byID map[ginnel.TerminatorID]*term
	open map[ginnel.CircuitID]*tally
}

// tally counts the rows by which one circuit is behind a terminator of an SDK.
// All are under terms.mu.
type tally struct {
	term *term
	rows map[*row]struct{}
}

func (ts *terms) init(c *circuits) {
	ts.c = c
	ts.checker = health.Checker{Dial: c.r.net.Dial, Jitter: ts.random, Places: make(chan struct{}, maxProbes)}
	ts.byID = make(map[ginnel.TerminatorID]*term)
	ts.open = make(map[ginnel.CircuitID]*tally)
}

// get gives a terminator; nil: there is none.
func (ts *terms) get(id ginnel.TerminatorID) *term {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.byID[id]
}

// has reports whether t is a terminator now.
func (ts *terms) has(t *term) bool { return ts.get(t.id) == t }

// configure takes what is to be hosted. Called in order of revisions; must not wait.
func (c *circuits) configure(cfg *wire.RouterConfig) {
	ts := &c.terms
	ts.mu.Lock()
	defer ts.mu.Unlock()
	wanted := make(map[ginnel.TerminatorID]*wire.HostedTerminator)
	for _, h := range cfg.GetTerminators() {
		wanted[ginnel.TerminatorID(h.GetId())] = h
	}
	for id, t := range ts.byID {
		h := wanted[id]
		switch {
		case t.conn != nil:
		case h == nil:
			ts.removeLocked(t)
		case h.GetAddress() == string(t.address) && h.GetService() == string(t.service):
			ts.checkLocked(t, h.GetCheck())
			delete(wanted, id)
		}
	}
	for id, h := range wanted {
		t := &term{
			id: id, service: ginnel.ServiceID(h.GetService()), address: ginnel.Address(h.GetAddress()),
			dynamic: new(terminator.Dynamic),
		}
		ts.byID[id] = t
		ts.checkLocked(t, h.GetCheck())
		ts.reportLocked(t)
	}
}

// bind takes a terminator of an SDK; false: it is another's.
func (ts *terms) bind(t *term) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	old := ts.byID[t.id]
	if old != nil && (old.conn == nil || old.host != t.host) {
		return false
	}
	if t.dynamic = new(terminator.Dynamic); old != nil {
		t.dynamic = old.dynamic
	}
	ts.byID[t.id] = t
	ts.reportLocked(t)
	return true
}

// unbind takes a terminator of an SDK away, if it is that of the connection.
func (ts *terms) unbind(id ginnel.TerminatorID, ec *edgeConn) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.byID[id]; t != nil && t.conn == ec {
		ts.removeLocked(t)
	}
}

// unbindAll takes away what an edge connection has bound, of one service or,
// when that is empty, of all. It gives what that was.
func (ts *terms) unbindAll(ec *edgeConn, service ginnel.ServiceID) (gone []ginnel.TerminatorID) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.byID {
		if t.conn == ec && (service == "" || service == t.service) {
			ts.removeLocked(t)
			gone = append(gone, t.id)
		}
	}
	return gone
}

func (ts *terms) removeLocked(t *term) {
	ts.uncheckLocked(t)
	delete(ts.byID, t.id)
	ts.c.r.report.terminator(&wire.TerminatorState{Id: string(t.id), Removed: true}, terminator.Dynamic{})
}

// reportLocked reports the terminator that t is, or was bound as before.
func (ts *terms) reportLocked(t *term) {
	now := ts.byID[t.id]
	if now == nil || now.dynamic != t.dynamic {
		return
	}
	ts.c.r.report.terminator(&wire.TerminatorState{
		Id: string(now.id), Bind: now.bind, Host: string(now.host), Checked: now.checked, Unhealthy: now.unhealthy,
	}, *now.dynamic)
}

// opened counts a connection that was made.
func (ts *terms) opened(t *term) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.dynamic.Opened(time.Now())
	ts.reportLocked(t)
}

// closed counts the end of a circuit that was opened.
func (ts *terms) closed(t *term) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.dynamic.Closed()
	ts.reportLocked(t)
}

// failed counts a connection that could not be made.
func (ts *terms) failed(t *term) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t.dynamic.Failed(time.Now())
	ts.reportLocked(t)
}

// behind counts a row of a circuit at an SDK's terminator; the first one opens it.
func (ts *terms) behind(t *term, r *row) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if r.over.Load() { // it went before the answer came
		return
	}
	y := ts.open[r.circuit]
	if y == nil {
		y = &tally{term: t, rows: make(map[*row]struct{})}
		ts.open[r.circuit] = y
		t.dynamic.Opened(time.Now())
		ts.reportLocked(t)
	}
	y.rows[r] = struct{}{}
}

// over takes a row out; the last one of a circuit closes it.
func (ts *terms) over(r *row) {
	if r.role == nil || !r.role.host || r.host != nil {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	y := ts.open[r.circuit]
	if y == nil {
		return
	}
	delete(y.rows, r)
	if len(y.rows) == 0 {
		delete(ts.open, r.circuit)
		y.term.dynamic.Closed()
		ts.reportLocked(y.term)
	}
}
