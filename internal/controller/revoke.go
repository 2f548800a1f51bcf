// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
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
)

// judge ends what is no longer allowed: it looks at the rows that routers
// report, when they report them and whenever the store has changed.
//
// It refuses only what it knows: out of a cache that is current, and that was
// known to be so after the row was reported. What it cannot know yet it looks
// at again.
type judge struct {
	c     *Controller
	dirty signal
	// epoch counts the changes of the store that a judgement depends on.
	epoch atomic.Uint64

	mu         sync.Mutex
	identities map[ginnel.IdentityID]struct{} // disabled, deleted or with another key
}

func newJudge(c *Controller) *judge {
	j := &judge{c: c, dirty: newSignal(), identities: make(map[ginnel.IdentityID]struct{})}
	j.epoch.Store(1) // above that of rows that were never judged
	return j
}

// kick says that there is something new to judge.
func (j *judge) kick() { j.dirty.fire() }

// changed says that all has to be judged anew.
func (j *judge) changed() {
	j.epoch.Add(1)
	j.dirty.fire()
}

// identity notes an identity that has lost what it had.
func (j *judge) identity(change store.Change) {
	old, was := change.Old.(ginnel.Identity)
	is, ok := change.New.(ginnel.Identity)
	if !was || ok && (!is.Disabled || old.Disabled) && (old.Key == "" || is.Key == old.Key) {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.identities[ginnel.IdentityID(change.ID)] = struct{}{}
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

// look judges everything and reports whether something is left.
func (j *judge) look() (left bool) {
	if !j.c.current() {
		return true
	}
	j.mu.Lock()
	lost := slices.Sorted(maps.Keys(j.identities))
	clear(j.identities)
	j.mu.Unlock()
	for _, id := range lost {
		for _, ch := range j.c.channels.all() {
			j.send(ch, &wire.Revoke{Identity: string(id)})
		}
	}
	epoch := j.epoch.Load() // before the store is read: what is read is at least as new
	r := j.c.rules()
	asOf := time.Now().Add(-j.c.store.Age())
	for id := range j.c.fabric.complete() {
		left = j.router(bench{rules: r, epoch: epoch, asOf: asOf}, id) || left
	}
	return left
}

// router judges the rows of one router and reports whether something is left.
func (j *judge) router(b bench, id ginnel.RouterID) (left bool) {
	ch, verdicts, left := j.c.fabric.judge(b, id)
	for _, v := range verdicts {
		if !j.send(ch, v) {
			return true
		}
	}
	return left || len(verdicts) > 0
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

// judge gives the revocations that a router is to be sent, each once, and
// whether there are rows that cannot be judged yet.
func (f *fabric) judge(b bench, id ginnel.RouterID) (ch *channel, verdicts []*wire.Revoke, left bool) {
	b.router, _ = b.Routers().Get(id)
	b.sent = make(map[verdict]bool)
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.routers[id]
	if s == nil {
		return nil, nil, false
	}
	for _, e := range s.edges {
		if e.passed != b.epoch {
			b.decide(b.edge(e), e.at, &e.judgement)
		}
	}
	for _, t := range s.terminators {
		if t.bound && t.passed != b.epoch {
			b.decide(b.bound(t), t.at, &t.judgement)
		}
	}
	for _, e := range s.endpoints {
		if e.passed == b.epoch {
			continue
		}
		if int64(b.Revision()) < e.ticket.GetRevision() {
			b.left = true
			continue
		}
		b.decide(b.endpoint(e), e.at, &e.judgement)
	}
	return s.ch, b.out, b.left
}

// verdict is what is to be revoked; zero: nothing.
type verdict struct {
	identity ginnel.IdentityID
	service  ginnel.ServiceID
	bind     bool
	circuit  ginnel.CircuitID
}

// bench judges the rows of one router, those that have not passed already.
type bench struct {
	rules
	epoch  uint64
	asOf   time.Time
	router ginnel.Router
	sent   map[verdict]bool
	out    []*wire.Revoke
	left   bool
}

// decide takes a verdict about a row that was reported at an instant.
func (b *bench) decide(v verdict, reported time.Time, j *judgement) {
	switch {
	case v == verdict{}:
		*j = judgement{passed: b.epoch}
		return
	case b.asOf.Before(reported), time.Since(j.revoked) < revokeAgain:
		b.left = true
		return
	}
	j.revoked = time.Now()
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
