// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// listDelay gathers changes that come together.
	listDelay = 50 * time.Millisecond
	// maxServiceRouters bounds the edge routers named for one service.
	maxServiceRouters = 32
)

// subscriber is an edge connection: its number at the router of a channel.
type subscriber struct {
	ch   *channel
	edge uint64
}

// subscription is who asked there, and what was sent. Its sequence, digest and
// pending belong to the goroutine of services.
type subscription struct {
	identity ginnel.IdentityID
	key      string
	nonce    []byte
	sequence uint64 // of the list sent last; 0: none yet
	digest   [sha256.Size]byte
}

// services sends every subscribed SDK the services that it may dial or host,
// at once and after every change, until its edge connection or the channel ends.
type services struct {
	c     *Controller
	fresh signal // somebody subscribed
	dirty signal // lists may have changed

	mu   sync.Mutex
	subs map[subscriber]*subscription
}

func newServices(c *Controller) *services {
	return &services{c: c, fresh: newSignal(), dirty: newSignal(), subs: make(map[subscriber]*subscription)}
}

// kick says that lists may have changed.
func (s *services) kick() { s.dirty.fire() }

// request takes a signed query, which subscribes the edge connection that it
// came over; on the goroutine that verifies the channel's requests.
func (s *services) request(ch *channel, m *wire.Message) {
	req := m.GetServicesRequest()
	var q wire.ServiceQuery
	identity, refused := s.c.verifyRequest(req.GetQuery(), wire.DomainServices, ch.router, &q)
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
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.fresh:
			s.push(func(sub *subscription) bool { return sub.sequence == 0 })
		case <-s.dirty:
			if !waiting {
				waiting = true
				timer.Reset(listDelay)
			}
		case <-timer.C:
			waiting = false
			s.push(func(*subscription) bool { return true })
		}
	}
}

// push sends the list to those subscribers that are meant and do not have it.
func (s *services) push(meant func(*subscription) bool) {
	r := s.c.rules()
	s.mu.Lock()
	todo := make(map[subscriber]*subscription)
	for at, sub := range s.subs {
		if meant(sub) {
			todo[at] = sub
		}
	}
	s.mu.Unlock()
	for at, sub := range todo {
		identity, ok := r.Identities().Get(sub.identity)
		if !ok || identity.Disabled || identity.Key != sub.key {
			s.edgeGone(at.ch, at.edge) // the judge has the connection ended
			continue
		}
		if err := s.send(r, at, sub, identity); err != nil {
			s.c.log.Warn("service list not sent", "router_id", string(at.ch.router), "identity", string(identity.ID), "err", err)
			at.ch.conn.Close(err)
		}
	}
}

func (s *services) send(r rules, at subscriber, sub *subscription, identity ginnel.Identity) error {
	pages := s.c.serviceList(r, identity)
	h := sha256.New()
	for _, p := range pages {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		if err != nil {
			return err
		}
		h.Write(raw)
	}
	sum := [sha256.Size]byte(h.Sum(nil))
	if sub.sequence > 0 && sum == sub.digest {
		return nil
	}
	sub.sequence++
	sub.digest = sum
	for i, p := range pages {
		p.Nonce, p.Sequence, p.Revision = sub.nonce, sub.sequence, int64(r.Revision())
		p.Page, p.Pages = uint32(i), uint32(len(pages))
		signed, err := pki.Sign(s.c.holder.Load(), wire.DomainServiceList, p)
		if err != nil {
			return err
		}
		if err := at.ch.conn.Notify(&wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: signed, Edge: at.edge}}}); err != nil {
			return err
		}
	}
	return nil
}

// serviceList gives the services that an identity may dial or host, with the
// edge routers that it can use, in pages of which there is at least one.
func (c *Controller) serviceList(r rules, identity ginnel.Identity) []*wire.ServiceList {
	infos := c.edgeRouters(r, identity)
	var routers []ginnel.Router
	for _, info := range infos {
		if router, ok := r.Routers().Get(ginnel.RouterID(info.GetId())); ok {
			routers = append(routers, router)
		}
	}
	page := &wire.ServiceList{Identity: string(identity.ID)}
	pages := []*wire.ServiceList{page}
	size := 0
	room := func(m proto.Message) *wire.ServiceList {
		n := proto.Size(m) + 8
		if size+n > pageBytes {
			page, size = &wire.ServiceList{Identity: string(identity.ID)}, 0
			pages = append(pages, page)
		}
		size += n
		return page
	}
	for _, info := range infos {
		p := room(info)
		p.Routers = append(p.Routers, info)
	}
	for service := range r.Services().All() {
		if info := serviceInfo(r, identity, service, routers); info != nil {
			p := room(info)
			p.Services = append(p.Services, info)
		}
	}
	return pages
}

// inService leaves out the quiesced routers, so that nobody tries them first. If
// that were all, they stay: whoever dials there is told why it is refused.
func inService(r rules, ids []ginnel.RouterID) []ginnel.RouterID {
	var open []ginnel.RouterID
	for _, id := range ids {
		if !r.quiesced(id) {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		return ids
	}
	return open
}

// serviceInfo gives a service as an identity is told it; nil: it is not.
func serviceInfo(r rules, identity ginnel.Identity, service ginnel.Service, routers []ginnel.Router) *wire.ServiceInfo {
	info := &wire.ServiceInfo{
		Id:      string(service.ID),
		CanDial: r.policies.CanDial(identity, service),
		CanBind: r.policies.CanBind(identity, service),
	}
	if !info.CanDial && !info.CanBind {
		return nil
	}
	allowed := r.policies.EdgeRouters(identity, service, routers)
	if len(allowed) == 0 {
		return nil // an empty list would say: all of them
	}
	allowed = inService(r, allowed)
	if len(allowed) < len(routers) {
		info.Routers = wire.Strings(allowed[:min(len(allowed), maxServiceRouters)])
	}
	if i := service.Intercept; i != nil && info.CanDial {
		info.Intercept = &wire.InterceptInfo{Addresses: i.Addresses, Ports: i.Ports, Protocols: i.Protocols}
	}
	return info
}
