// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// listDelay gathers changes that come together. After a round that took longer
// the next one waits as long as it took.
const listDelay = 50 * time.Millisecond

// subscriber is an edge connection: its number at the router of a channel.
type subscriber struct {
	ch   *channel
	edge uint64
}

// subscription is who asked there, and what was sent. What is below the nonce
// belongs to the goroutine of services.
type subscription struct {
	identity ginnel.IdentityID
	key      string
	nonce    []byte
	sequence uint64 // of the list sent last; 0: none yet
	digest   [sha256.Size]byte
	behind   bool // as that list said
	// who is the identity as the policies know it that it was looked up in.
	who      *policy.Who
	policies *policy.Set
}

// services sends every subscribed SDK the services that it may dial or host,
// at once and after every change that concerns it, until its edge connection or
// the channel ends. When what it knows becomes too old to be sure of, it says so.
type services struct {
	c     *Controller
	fresh signal // somebody subscribed
	dirty signal // lists may have changed

	mu      sync.Mutex
	subs    map[subscriber]*subscription
	touched *touched
	edges   map[ginnel.RouterID]string // edge addresses as routers said last
}

func newServices(c *Controller) *services {
	return &services{
		c: c, fresh: newSignal(), dirty: newSignal(),
		subs: make(map[subscriber]*subscription), touched: newTouched(), edges: make(map[ginnel.RouterID]string),
	}
}

// stored takes a change of the store. What lists do not show changes none.
func (s *services) stored(change store.Change) {
	if change.Kind == store.KindService && sameInLists(change) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touched.note(change)
	if change.Kind == store.KindRouter && change.New == nil {
		delete(s.edges, ginnel.RouterID(change.ID))
	}
	s.dirty.fire()
}

// sameInLists reports whether lists show a service as they did before.
func sameInLists(change store.Change) bool {
	old, was := change.Old.(ginnel.Service)
	now, is := change.New.(ginnel.Service)
	if !was || !is || !slices.Equal(old.Roles, now.Roles) || (old.Intercept == nil) != (now.Intercept == nil) {
		return false
	}
	return now.Intercept == nil || proto.Equal(interceptInfo(old.Intercept), interceptInfo(now.Intercept))
}

// said takes where a router says that SDKs reach it.
func (s *services) said(id ginnel.RouterID, address string) {
	router, ok := s.c.store.View().Routers().Get(id)
	if !ok {
		return // the store's change tells of it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.edges[id] != address {
		s.edges[id] = address
		s.touched.note(store.Change{Kind: store.KindRouter, ID: string(id), Old: router})
		s.dirty.fire()
	}
}

// request takes a signed query, which subscribes the edge connection that it
// came over; on the goroutine that verifies the channel's requests.
func (s *services) request(ch *channel, m *wire.Message) {
	req := m.GetServicesRequest()
	var q wire.ServiceQuery
	signer, refused := s.c.verifyRequest(req.GetQuery(), wire.DomainServices, ch.router, &q)
	var identity ginnel.Identity
	if refused == nil {
		var unknown *ginnel.DialError
		if identity, unknown = known(s.c.store.View(), signer); unknown != nil {
			refused = failure(s.c.refusal(unknown))
		}
	}
	if refused != nil {
		// Who does not hear the answer has no channel any more.
		_ = ch.conn.Reply(m.GetId(), &wire.Message{Body: &wire.Message_Failure{Failure: refused}})
		return
	}
	s.mu.Lock()
	if ch.conn.Err() == nil { // once it has ended, channelGone may have been here
		s.subs[subscriber{ch, req.GetEdge()}] = &subscription{
			identity: identity.ID, key: identity.Key, nonce: q.GetAudience().GetNonce(),
		}
	}
	s.mu.Unlock()
	_ = ch.conn.ReplyDone(m.GetId())
	s.fresh.fire()
}

// edgeGone ends the subscription of an edge connection.
func (s *services) edgeGone(ch *channel, edge uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, subscriber{ch, edge})
}

// channelGone ends all subscriptions that came over a channel.
func (s *services) channelGone(ch *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.subs {
		if at.ch == ch {
			delete(s.subs, at)
		}
	}
}

func (s *services) run(ctx context.Context) {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	waiting := false
	rest := listDelay
	aged := time.NewTimer(staleAfter)
	defer aged.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.fresh:
			s.push(newTouched())
		case <-aged.C:
			s.push(newTouched()) // to whom it is news
			aged.Reset(max(staleAfter-s.c.store.Age(), time.Second))
		case <-s.dirty:
			if !waiting {
				waiting = true
				timer.Reset(rest)
			}
		case <-timer.C:
			waiting = false
			began := time.Now()
			s.push(s.take())
			rest = max(listDelay, time.Since(began))
		}
	}
}

// take gives what was touched since the last time.
func (s *services) take() *touched {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.touched
	s.touched = newTouched()
	return t
}

// push sends the list to those subscribers that have none, to those that a change
// concerns, and to those that think it surer or less sure than it is, unless they
// have it. It looks at the store later than at t.
func (s *services) push(t *touched) {
	behind := !s.c.current()
	s.mu.Lock()
	todo := make(map[subscriber]*subscription)
	for at, sub := range s.subs {
		if sub.sequence == 0 || sub.behind != behind || !t.empty() {
			todo[at] = sub
		}
	}
	s.mu.Unlock()
	if len(todo) == 0 {
		return
	}
	o := s.c.newOffer(s.c.rules())
	news := newNews(o, t)
	alike := make(map[string][]subscriber) // by what the policies say of them
	for at, sub := range todo {
		identity, ok := o.Identities().Get(sub.identity)
		if !ok || identity.Disabled || identity.Key != sub.key {
			s.edgeGone(at.ch, at.edge) // the judge has the connection ended
			continue
		}
		_, changed := t.identities[sub.identity]
		if changed || sub.policies != o.policies {
			sub.who, sub.policies = o.policies.Who(identity), o.policies
		}
		if sub.sequence > 0 && sub.behind == behind && !changed && !news.concern(identity, sub.who) {
			continue
		}
		key := sub.who.Key()
		alike[key] = append(alike[key], at)
	}
	for _, those := range alike {
		l, err := o.list(todo[those[0]].who)
		for _, at := range those {
			sub := todo[at]
			err := err
			if err == nil {
				err = s.send(l, o.Revision(), behind, at, sub)
			}
			if err != nil {
				s.c.log.Warn("service list not sent", "router_id", string(at.ch.router), "identity", string(sub.identity), "err", err)
				at.ch.conn.Close(err)
			}
		}
	}
}

// news is what was touched, looked up for the question whom it concerns.
type news struct {
	was, is *policy.Set   // the changed policies alone; nil: none has changed
	service *policy.What  // all services that have changed, as they were and are; nil: none
	router  *policy.Where // likewise
}

func newNews(o *offer, t *touched) *news {
	n := &news{}
	if len(t.policies) > 0 {
		n.was, n.is = t.oldPolicies(), t.newPolicies(o.View)
	}
	for id, was := range t.services {
		if now, ok := o.Services().Get(id); ok {
			n.service = n.service.Or(o.what(now))
		}
		if was.ID != "" {
			n.service = n.service.Or(o.policies.What(was))
		}
	}
	for id, was := range t.routers {
		if now, ok := o.Routers().Get(id); ok {
			n.router = n.router.Or(o.policies.Where(now))
		}
		if was.ID != "" {
			n.router = n.router.Or(o.policies.Where(was))
		}
	}
	return n
}

// concern reports whether an identity's list may be another one now: a policy
// names it that has changed, or it has, or had, what has.
func (n *news) concern(identity ginnel.Identity, who *policy.Who) bool {
	return n.was != nil && (n.was.Who(identity).Named() || n.is.Who(identity).Named()) ||
		n.service != nil && (who.CanDial(n.service) || who.CanBind(n.service)) ||
		n.router != nil && who.CanConnect(n.router)
}

// send sends a list, unless the subscriber has it.
func (s *services) send(l offered, revision store.Revision, behind bool, at subscriber, sub *subscription) error {
	if sub.sequence > 0 && l.digest == sub.digest && sub.behind == behind {
		return nil
	}
	sub.sequence++
	sub.digest, sub.behind = l.digest, behind
	for i, p := range l.pages {
		signed, err := pki.Sign(s.c.holder.Load(), wire.DomainServiceList, &wire.ServiceList{
			Identity: string(sub.identity), Nonce: sub.nonce, Sequence: sub.sequence, Revision: int64(revision),
			Page: uint32(i), Pages: uint32(len(l.pages)), Services: p.GetServices(), Routers: p.GetRouters(), Behind: behind,
		})
		if err != nil {
			return err
		}
		if err := at.ch.conn.Notify(&wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: signed, Edge: at.edge}}}); err != nil {
			return err
		}
	}
	return nil
}
