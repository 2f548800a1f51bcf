// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// judgeEvery is the least time between two looks at all rows.
	judgeEvery = 100 * time.Millisecond
	// judgeAgain is when what could not be judged, or sent, is looked at again.
	judgeAgain = time.Second
	// revokeAgain is when a row that a router still reports is revoked again.
	revokeAgain = 5 * time.Second
	// keptTimes: a row that is to be revoked so often is kept by a router that
	// hears us, for one that is silent so long has lost its channel.
	keptTimes = 5
)

// judge ends what is no longer allowed: it looks at the rows that routers
// report, when they report them and when the store has changed such that they
// may have lost their ground.
//
// It refuses only what it knows: out of a cache that is current, and that was
// known to be so after the row was reported. What it cannot know yet it looks
// at again.
type judge struct {
	c     *Controller
	dirty signal

	mu         sync.Mutex
	touched    *touched
	identities map[ginnel.IdentityID]struct{} // disabled, deleted or with another key
}

func newJudge(c *Controller) *judge {
	return &judge{c: c, dirty: newSignal(), touched: newTouched(), identities: make(map[ginnel.IdentityID]struct{})}
}

// kick says that there is something new to judge.
func (j *judge) kick() { j.dirty.fire() }

// stored takes a change of the store.
func (j *judge) stored(change store.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if lost(change) {
		j.identities[ginnel.IdentityID(change.ID)] = struct{}{}
	}
	if takes(change) {
		j.touched.note(change)
	}
	j.dirty.fire() // what it gives may help who was refused
}

// lost reports whether an identity has lost what it had.
func lost(change store.Change) bool {
	old, was := change.Old.(ginnel.Identity)
	is, ok := change.New.(ginnel.Identity)
	return was && (!ok || is.Disabled && !old.Disabled || old.Key != "" && is.Key != old.Key)
}

// takes reports whether a change can take something away from anybody. What is
// new does not, nor what no policy looks at.
func takes(change store.Change) bool {
	if change.Old == nil || change.New == nil {
		return change.Old != nil
	}
	switch old := change.Old.(type) {
	case ginnel.Service:
		return !slices.Equal(old.Roles, change.New.(ginnel.Service).Roles)
	case ginnel.Router:
		now := change.New.(ginnel.Router)
		return old.Disabled != now.Disabled || !slices.Equal(old.Roles, now.Roles)
	}
	return true
}

func (j *judge) run(ctx context.Context) {
	again := time.NewTimer(judgeAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.dirty:
		case <-again.C:
		}
		if j.look() {
			again.Reset(judgeAgain)
		} else {
			again.Stop()
		}
		if !pause(ctx, judgeEvery) {
			return
		}
	}
}

// look judges what may be judged otherwise than before, and reports whether
// something is left.
func (j *judge) look() (left bool) {
	if !j.c.current() {
		return true
	}
	j.mu.Lock()
	lost := slices.Sorted(maps.Keys(j.identities))
	t := j.touched
	clear(j.identities)
	j.touched = newTouched()
	j.mu.Unlock()
	for _, id := range lost {
		for _, ch := range j.c.channels.all() {
			j.send(ch, &wire.Revoke{Identity: string(id)})
		}
	}
	r := j.c.rules() // after what is touched was taken: it is at least as new
	asOf := time.Now().Add(-j.c.store.Age())
	shaken := newShaken(r, t)
	for id := range j.c.fabric.complete() {
		left = j.router(bench{rules: r, shaken: shaken, asOf: asOf}, id) || left
	}
	return left
}

// router judges the rows of one router and reports whether something is left.
func (j *judge) router(b bench, id ginnel.RouterID) (left bool) {
	ch, b := j.c.fabric.judge(b, id)
	if b.kept != nil {
		j.c.faults.note(id, faultKept, b.kept)
	}
	for _, v := range b.out {
		if !j.send(ch, v) {
			return true
		}
	}
	return b.left || len(b.out) > 0
}

// send sends one revocation. A router that does not take it is hung up: it is
// judged anew when it is back.
func (j *judge) send(ch *channel, v *wire.Revoke) bool {
	if err := ch.conn.Notify(&wire.Message{Body: &wire.Message_Revoke{Revoke: v}}); err != nil {
		ch.conn.Close(err)
		return false
	}
	j.c.metrics.revoked.Inc()
	j.c.log.Info("revoked", "router_id", string(ch.router), "identity", v.GetIdentity(), "service", v.GetService(),
		"bind", v.GetBind(), "circuit_id", v.GetCircuit())
	return true
}

// rows are all of a router's rows that are judged.
type rows struct {
	ch          *channel
	edges       []*edgeRow
	terminators []*terminatorRow
	endpoints   []*endpointRow
}

// rowsOf gives the rows of a router: those that have not passed, or all. Rows do
// not change, but for their judgement, which is the judge's.
func (f *fabric) rowsOf(id ginnel.RouterID, all bool) (of rows) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.routers[id]
	if s == nil {
		return rows{}
	}
	of.ch = s.ch
	for _, e := range s.edges {
		if all || !e.passed {
			of.edges = append(of.edges, e)
		}
	}
	for _, t := range s.terminators {
		if t.bound && (all || !t.passed) {
			of.terminators = append(of.terminators, t)
		}
	}
	for _, e := range s.endpoints {
		if all || !e.passed {
			of.endpoints = append(of.endpoints, e)
		}
	}
	return of
}

// judge judges the rows of a router, and gives its channel and the bench with what
// came out. Nobody waits for it.
func (f *fabric) judge(b bench, id ginnel.RouterID) (*channel, bench) {
	b.router, _ = b.Routers().Get(id)
	b.sent = make(map[verdict]bool)
	of := f.rowsOf(id, !b.shaken.empty())
	for _, e := range of.edges {
		if !e.passed || b.shaken.edge(id, e) {
			b.decide(b.edge(e), e.at, e.judgement)
		}
	}
	for _, t := range of.terminators {
		if !t.passed || b.shaken.bound(id, t) {
			b.decide(b.bound(t), t.at, t.judgement)
		}
	}
	for _, e := range of.endpoints {
		if e.passed && !b.shaken.endpoint(id, e) {
			continue
		}
		if int64(b.Revision()) < e.ticket.GetRevision() {
			e.passed, b.left = false, true
			continue
		}
		b.decide(b.endpoint(e), e.at, e.judgement)
	}
	return of.ch, b
}

// shaken tells the rows that may have lost their ground.
type shaken struct {
	*touched
	view  *store.View
	was   *policy.Set // the policies that have changed, as they were
	named map[ginnel.IdentityID]bool
}

func newShaken(r rules, t *touched) shaken {
	return shaken{touched: t, view: r.View, was: t.oldPolicies(), named: make(map[ginnel.IdentityID]bool)}
}

func (s shaken) edge(at ginnel.RouterID, e *edgeRow) bool { return s.row(at, "", e.identity) }

func (s shaken) bound(at ginnel.RouterID, t *terminatorRow) bool {
	return s.row(at, t.spec.Service, t.spec.Host)
}

func (s shaken) endpoint(at ginnel.RouterID, e *endpointRow) bool {
	peer := pki.TicketPeer(e.ticket)
	return s.row(at, ginnel.ServiceID(e.ticket.GetService()), ginnel.IdentityID(e.ticket.GetClient())) ||
		peer.Role == ginnel.RoleIdentity && s.identity(ginnel.IdentityID(peer.ID))
}

// row reports whether something has changed of a row at a router, which is
// about a service, if any, and an identity.
func (s shaken) row(at ginnel.RouterID, service ginnel.ServiceID, id ginnel.IdentityID) bool {
	_, router := s.routers[at]
	_, served := s.services[service]
	return router || served || s.identity(id)
}

// identity reports whether an identity has changed, or a policy that named it.
func (s shaken) identity(id ginnel.IdentityID) bool {
	if _, changed := s.identities[id]; changed || len(s.policies) == 0 {
		return changed
	}
	named, known := s.named[id]
	if !known {
		record, ok := s.view.Identities().Get(id)
		named = !ok || s.was.Who(record).Named()
		s.named[id] = named
	}
	return named
}

// verdict is what is to be revoked; zero: nothing.
type verdict struct {
	identity ginnel.IdentityID
	service  ginnel.ServiceID
	bind     bool
	circuit  ginnel.CircuitID
}

// String says what the verdict is about.
func (v verdict) String() string {
	text := "identity " + string(v.identity)
	if v.service != "" {
		text += ", service " + string(v.service)
	}
	switch {
	case v.bind:
		text += ", its terminators"
	case v.circuit != "":
		text += ", circuit " + string(v.circuit)
	}
	return text
}

// bench judges the rows of one router, those that have not passed or are shaken.
type bench struct {
	rules
	shaken shaken
	asOf   time.Time
	router ginnel.Router
	sent   map[verdict]bool
	// What comes out:
	out  []*wire.Revoke // to be sent, each once
	left bool           // there are rows that cannot be judged yet
	kept error          // what the router does not let go of; nil: nothing
}

// decide takes a verdict about a row that was reported at an instant.
func (b *bench) decide(v verdict, reported time.Time, j *judgement) {
	if v == (verdict{}) {
		*j = judgement{passed: true}
		return
	}
	if j.passed = false; b.asOf.Before(reported) || time.Since(j.revoked) < revokeAgain {
		b.left = true
		return
	}
	j.revoked = time.Now()
	if j.times++; j.times >= keptTimes {
		b.kept = fmt.Errorf("it was told %d times to end this, and reports it still: %s", j.times-1, v)
	}
	if b.sent[v] {
		return
	}
	b.sent[v] = true
	b.out = append(b.out, &wire.Revoke{
		Identity: string(v.identity), Service: string(v.service), Bind: v.bind, Circuit: string(v.circuit),
	})
}

// edge judges an edge connection: everything ends when there may be none.
func (b *bench) edge(e *edgeRow) verdict {
	identity, ok := b.Identities().Get(e.identity)
	if ok && !identity.Disabled && (e.key == "" || e.key == identity.Key) && b.policies.CanConnect(identity, b.router) {
		return verdict{}
	}
	return verdict{identity: e.identity}
}

// bound judges a terminator that an SDK has bound.
func (b *bench) bound(t *terminatorRow) verdict {
	service, ok := b.Services().Get(t.spec.Service)
	if ok && t.allowed(b.rules, service) == nil {
		return verdict{}
	}
	return verdict{identity: t.spec.Host, service: t.spec.Service, bind: true}
}

// endpoint judges an end of a circuit by its ticket: the client must still be
// let to dial the service, over this router where it is the client's end, and a
// hosting identity must be let to host it.
func (b *bench) endpoint(e *endpointRow) verdict {
	client := ginnel.IdentityID(e.ticket.GetClient())
	service := ginnel.ServiceID(e.ticket.GetService())
	identity, known := b.Identities().Get(client)
	sv, exists := b.Services().Get(service)
	switch {
	case !e.host:
		if known && exists && b.policies.AuthorizeDial(identity, sv, b.router) == nil {
			return verdict{}
		}
		return verdict{identity: client, service: service}
	case known && exists && b.policies.CanDial(identity, sv) && b.hosts(e, sv):
		return verdict{}
	}
	return verdict{identity: client, service: service, circuit: e.circuit}
}

// hosts reports whether the host's end of a circuit may stay here.
func (b *bench) hosts(e *endpointRow, service ginnel.Service) bool {
	peer := pki.TicketPeer(e.ticket)
	if peer.Role != ginnel.RoleIdentity {
		return true
	}
	host, ok := b.Identities().Get(ginnel.IdentityID(peer.ID))
	return ok && b.policies.AuthorizeBind(host, service, b.router) == nil
}
