// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	queryTimeout = 5 * time.Second
	queryPause   = time.Second // after a query that failed
	maxPages     = 4096        // of one list
)

// Service is a service that the identity may dial or host.
type Service struct {
	ginnel.Service                   // id and intercept; the rest is not known here
	CanDial        bool              `json:"can_dial"`
	CanBind        bool              `json:"can_bind"`
	Routers        []ginnel.RouterID `json:"routers,omitempty"` // edge routers allowed for it; empty: all
}

// services follows the list of services: it subscribes at one controller over
// one edge connection, and takes the signed pages that come from there.
type services struct {
	c *Client

	mu      sync.Mutex
	asked   subscription
	pages   []*wire.ServiceList // of the list that is coming in
	list    []Service           // by id; replaced as a whole
	known   bool
	as      int64         // revision of the store that it shows
	changed chan struct{} // closed when list is replaced
	// behind are controllers whose last list says that others may know better.
	behind map[ginnel.ControllerID]bool
}

// subscription is whom the list comes from.
type subscription struct {
	edge             *edge // nil: nobody
	controller, boot string
	nonce            []byte
	sequence         uint64 // of the last complete list
}

func newServices(c *Client) *services {
	return &services{c: c, changed: make(chan struct{}), behind: make(map[ginnel.ControllerID]bool)}
}

// Services gives the services that the identity may dial or host, by id: as last
// heard, and nil before the first list has come. See Changed.
func (c *Client) Services() []Service {
	c.services.mu.Lock()
	defer c.services.mu.Unlock()
	return slices.Clone(c.services.list)
}

// Changed gives a channel that is closed when Services has something else to
// give. Take it before the list that it is about.
func (c *Client) Changed() <-chan struct{} { return c.services.watch() }

func (s *services) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// find gives a service of the list; one that is not in it may be neither dialed nor hosted.
func (s *services) find(id ginnel.ServiceID) (service Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := slices.BinarySearchFunc(s.list, id, func(a Service, id ginnel.ServiceID) int { return cmp.Compare(a.ID, id) })
	if ok {
		service = s.list[i]
	}
	return service
}

// allowed gives the edge routers that a service may be reached over; none: all.
func (s *services) allowed(id ginnel.ServiceID) []ginnel.RouterID {
	return s.find(id).Routers
}

// controller gives the one that was asked last: others spread by chance, and
// who has answered will again.
func (s *services) controller() ginnel.ControllerID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ginnel.ControllerID(s.asked.controller)
}

// run keeps a subscription until ctx ends.
func (s *services) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := s.c.edges.watch()
		retry := false
		if !s.subscribed() {
			if err := s.subscribe(ctx); err != nil && ctx.Err() == nil {
				s.c.log.Debug("no service list", "err", err)
				retry = true
			}
		}
		s.wait(ctx, changed, retry)
	}
}

// wait waits for a change of edge routers or controllers; after a failure only
// for a while.
func (s *services) wait(ctx context.Context, changed <-chan struct{}, retry bool) {
	var again <-chan time.Time
	if retry {
		timer := time.NewTimer(queryPause)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-changed:
	case <-again:
	case <-ctx.Done():
	}
}

// subscribed reports whether the list still comes from where it was asked for, and
// no other controller is to be asked in its place.
func (s *services) subscribed() bool {
	s.mu.Lock()
	asked := s.asked
	s.mu.Unlock()
	if asked.edge == nil || !asked.edge.has(asked.controller, asked.boot) {
		return false
	}
	_, other := asked.edge.audience("", s.isBehind)
	return !other || !s.isBehind(ginnel.ControllerID(asked.controller))
}

func (s *services) isBehind(id ginnel.ControllerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind[id]
}

// subscribe asks a controller for the list, over the best edge connection that
// reaches one.
func (s *services) subscribe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	skip := make(map[ginnel.RouterID]bool)
	for {
		e, err := s.c.edges.pick(ctx, wish{skip: skip})
		if err != nil {
			return err
		}
		to, ok := s.c.audience(e, s.isBehind)
		if !ok {
			to, ok = s.c.audience(e, nil)
		}
		if ok {
			return s.query(ctx, e, to)
		}
		skip[e.id] = true
	}
}

func (s *services) query(ctx context.Context, e *edge, to *wire.ControllerInfo) error {
	_, _, err := s.c.ask(ctx, e, to, question{
		domain: wire.DomainServices,
		body: func(a *wire.Audience) proto.Message {
			s.mu.Lock()
			defer s.mu.Unlock()
			// Before it is sent: pages may come before the answer.
			s.asked = subscription{edge: e, controller: a.GetController(), boot: a.GetBoot(), nonce: a.GetNonce()}
			s.pages = nil
			return &wire.ServiceQuery{Network: string(s.c.domain), Router: string(e.id), Audience: a}
		},
		message: func(signed *wire.Signed) *wire.Message {
			return &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: &wire.ServicesRequest{Query: signed}}}
		},
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		// The next query goes to whom chance chooses.
		s.asked = subscription{}
	}
	return err
}

// page takes a page of the list, on e's reading goroutine. A page that is not
// part of what was asked for is skipped: routers pass on what they like.
func (s *services) page(e *edge, signed *wire.Signed) {
	var page wire.ServiceList
	_, err := pki.OpenInto(signed, wire.DomainServiceList, s.c.holder.Load().CA, time.Now(), &page, ginnel.RoleController)
	if err != nil {
		s.c.log.Warn("service list refused", "router", string(e.id), "err", err)
		return
	}
	list, routers := s.take(e, &page)
	if list == nil {
		if page.GetBehind() {
			s.c.edges.moved() // so that another controller is asked
		}
		return
	}
	s.c.log.Debug("service list", "services", len(list), "edge_routers", len(routers))
	// An identity without any edge router left would never hear of new ones.
	if len(routers) > 0 && s.c.edges.set(routers) {
		s.c.announce()
	}
	s.c.edges.moved() // what may be bound where
}

// take adds a page, and gives the list once it is complete.
func (s *services) take(e *edge, page *wire.ServiceList) ([]Service, []pki.EdgeRouter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e != s.asked.edge, page.GetIdentity() != string(s.c.self), !bytes.Equal(page.GetNonce(), s.asked.nonce),
		page.GetSequence() <= s.asked.sequence,
		page.GetPages() > maxPages, page.GetPage() >= page.GetPages():
		return nil, nil
	}
	if page.GetPage() == 0 {
		s.pages = s.pages[:0]
	}
	// Pages come in order: those of one list over one connection.
	if len(s.pages) != int(page.GetPage()) || len(s.pages) > 0 && s.pages[0].GetSequence() != page.GetSequence() {
		s.pages = s.pages[:0]
		return nil, nil
	}
	s.pages = append(s.pages, page)
	if len(s.pages) < int(page.GetPages()) {
		return nil, nil
	}
	list, routers := readList(s.pages)
	s.asked.sequence, s.pages = page.GetSequence(), nil
	if s.behind[ginnel.ControllerID(s.asked.controller)] = page.GetBehind(); page.GetBehind() && s.known && page.GetRevision() < s.as {
		return nil, nil // what is known is newer
	}
	s.list, s.known, s.as = list, true, page.GetRevision()
	close(s.changed)
	s.changed = make(chan struct{})
	return list, routers
}

// readList gives what the pages of a list say, in order of ids.
func readList(pages []*wire.ServiceList) ([]Service, []pki.EdgeRouter) {
	list, routers := []Service{}, []pki.EdgeRouter{}
	for _, p := range pages {
		for _, info := range p.GetServices() {
			list = append(list, readService(info))
		}
		for _, info := range p.GetRouters() {
			address, err := ginnel.ParseAddress(info.GetAddress(), false, "tls")
			if err == nil && ginnel.CheckName(info.GetId()) == nil {
				routers = append(routers, pki.EdgeRouter{ID: ginnel.RouterID(info.GetId()), Address: address})
			}
		}
	}
	slices.SortFunc(list, func(a, b Service) int { return cmp.Compare(a.ID, b.ID) })
	return list, routers
}

func readService(info *wire.ServiceInfo) Service {
	s := Service{
		Service: ginnel.Service{ID: ginnel.ServiceID(info.GetId())},
		CanDial: info.GetCanDial(), CanBind: info.GetCanBind(),
		Routers: wire.IDs[ginnel.RouterID](info.GetRouters()),
	}
	if i := info.GetIntercept(); i != nil {
		s.Intercept = &ginnel.Intercept{Addresses: i.GetAddresses(), Ports: i.GetPorts(), Protocols: i.GetProtocols()}
	}
	return s
}
