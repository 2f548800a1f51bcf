// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"crypto/sha256"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxServiceRouters bounds the edge routers named for one service.
const maxServiceRouters = 32

// offer is what service lists are made of, as of one revision of the store:
// what does not depend on who asks is looked up once for all. One goroutine
// uses it.
type offer struct {
	rules
	routers []offeredRouter // that SDKs can reach, by id
	known   map[ginnel.ServiceID]*policy.What
}

type offeredRouter struct {
	*policy.Where
	info     *wire.EdgeRouterInfo
	quiesced bool
}

func (c *Controller) newOffer(r rules) *offer {
	o := &offer{rules: r, known: make(map[ginnel.ServiceID]*policy.What)}
	peers := c.fabric.allPeers()
	for router := range r.Routers().All() {
		address := peers[router.ID].GetEdgeAddress()
		if address == "" {
			continue
		}
		if _, err := ginnel.ParseAddress(address, false, "tls"); err == nil {
			o.routers = append(o.routers, offeredRouter{
				Where: r.policies.Where(router), quiesced: router.Quiesced,
				info: &wire.EdgeRouterInfo{Id: string(router.ID), Address: address},
			})
		}
	}
	return o
}

// what looks a service up in the policies, once.
func (o *offer) what(s ginnel.Service) *policy.What {
	w := o.known[s.ID]
	if w == nil {
		w = o.policies.What(s)
		o.known[s.ID] = w
	}
	return w
}

// offered is what all identities are told of whom the policies say the same: at least
// one page, without what is each one's own.
type offered struct {
	pages  []*wire.ServiceList
	digest [sha256.Size]byte
}

// list gives the services that an identity may dial or host, with the edge
// routers that it can use.
func (o *offer) list(who *policy.Who) (offered, error) {
	pages := o.pages(who)
	h := sha256.New()
	for _, p := range pages {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		if err != nil {
			return offered{}, err
		}
		h.Write(raw)
	}
	return offered{pages, [sha256.Size]byte(h.Sum(nil))}, nil
}

func (o *offer) pages(who *policy.Who) []*wire.ServiceList {
	page := new(wire.ServiceList)
	pages := []*wire.ServiceList{page}
	size := 0
	room := func(m proto.Message) *wire.ServiceList {
		n := proto.Size(m) + 8
		if size+n > pageBytes {
			page, size = new(wire.ServiceList), 0
			pages = append(pages, page)
		}
		size += n
		return page
	}
	var routers []offeredRouter
	for _, r := range o.routers {
		if who.CanConnect(r.Where) {
			routers = append(routers, r)
			p := room(r.info)
			p.Routers = append(p.Routers, r.info)
		}
	}
	for service := range o.within(who) {
		if info := o.service(service, who, routers); info != nil {
			p := room(info)
			p.Services = append(p.Services, info)
		}
	}
	return pages
}

// within gives the services among which are those of an identity, by id.
func (o *offer) within(who *policy.Who) iter.Seq[ginnel.Service] {
	roles, ids := who.Reach()
	if slices.Contains(roles, policy.All) {
		return o.Services().All()
	}
	var found []ginnel.Service
	for _, role := range roles {
		found = slices.AppendSeq(found, o.ServicesWithRole(role))
	}
	for _, id := range ids {
		if s, ok := o.Services().Get(id); ok {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b ginnel.Service) int { return cmp.Compare(a.ID, b.ID) })
	return slices.Values(slices.CompactFunc(found, func(a, b ginnel.Service) bool { return a.ID == b.ID }))
}

// service gives a service as an identity is told it, which can use the routers;
// nil: it is not.
func (o *offer) service(s ginnel.Service, who *policy.Who, routers []offeredRouter) *wire.ServiceInfo {
	what := o.what(s)
	info := &wire.ServiceInfo{Id: string(s.ID), CanDial: who.CanDial(what), CanBind: who.CanBind(what)}
	if !info.CanDial && !info.CanBind {
		return nil
	}
	allowed, open := make([]string, 0, len(routers)), make([]string, 0, len(routers))
	for _, r := range routers {
		if who.CanUse(what, r.Where) {
			allowed = append(allowed, r.info.GetId())
			if !r.quiesced {
				open = append(open, r.info.GetId())
			}
		}
	}
	if len(allowed) == 0 {
		return nil // an empty list would say: all of them
	}
	// Nobody shall try the quiesced ones first. If that were all, they stay:
	// whoever dials there is told why it is refused.
	if len(open) > 0 {
		allowed = open
	}
	if len(allowed) < len(routers) {
		info.Routers = allowed[:min(len(allowed), maxServiceRouters)]
	}
	if s.Intercept != nil && info.CanDial {
		info.Intercept = interceptInfo(s.Intercept)
	}
	return info
}

func interceptInfo(i *ginnel.Intercept) *wire.InterceptInfo {
	return &wire.InterceptInfo{Addresses: i.Addresses, Ports: i.Ports, Protocols: i.Protocols}
}
