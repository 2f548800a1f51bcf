// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"slices"

	"github.com/ginnel/ginnel"
)

// Path is the routers and links from ingress to egress. Links[i] joins
// Routers[i] and Routers[i+1].
type Path struct {
	Routers []ginnel.RouterID
	Links   []ginnel.LinkID
	Cost    ginnel.Cost
}

// HasRouter reports whether the path goes over the router.
func (p Path) HasRouter(id ginnel.RouterID) bool { return slices.Contains(p.Routers, id) }

// HasLink reports whether the path goes over the link.
func (p Path) HasLink(id ginnel.LinkID) bool { return slices.Contains(p.Links, id) }

// Hop is one step of a path with what it costs, for those who ask why.
type Hop struct {
	Link   ginnel.LinkID
	Router ginnel.RouterID // the router entered
	// LinkCost and RouterCost add up to the hop's cost.
	LinkCost   ginnel.Cost
	RouterCost ginnel.Cost
}

// Hops gives the costs of a path's hops in this snapshot; a link or router that
// is not in it ends the list.
func (s *Snapshot) Hops(p Path) []Hop {
	var hops []Hop
	for i, id := range p.Links {
		at, known := slices.BinarySearchFunc(s.links, id, func(l ginnel.Link, id ginnel.LinkID) int {
			return cmp.Compare(l.ID, id)
		})
		to, connected := s.number[p.Routers[i+1]]
		if !known || !connected {
			break
		}
		hops = append(hops, Hop{Link: id, Router: p.Routers[i+1], LinkCost: LinkCost(s.links[at]), RouterCost: s.entry[to]})
	}
	return hops
}

// Exclusions are routers and links that a search is not to use.
type Exclusions struct {
	Routers []ginnel.RouterID
	Links   []ginnel.LinkID
}

// Empty reports whether nothing is excluded.
func (x Exclusions) Empty() bool { return len(x.Routers) == 0 && len(x.Links) == 0 }

// CostOf gives what a path costs in this snapshot; false when one of its
// routers or links is not there.
func (s *Snapshot) CostOf(p Path) (ginnel.Cost, bool) {
	if len(p.Routers) == 0 || !s.Connected(p.Routers[0]) {
		return 0, false
	}
	hops := s.Hops(p)
	var cost ginnel.Cost
	for _, h := range hops {
		cost = cost.Add(h.LinkCost.Add(h.RouterCost))
	}
	return cost, len(hops) == len(p.Links)
}

// WorthMoving reports whether a running circuit should leave a path of cost now
// for one of cost best: the gain has to be more than a fifth and more than the
// cost of a hop, so that noise moves nothing back and forth.
func WorthMoving(now, best ginnel.Cost) bool {
	gain := now - best
	return gain > now/5 && gain > ginnel.MinRouterCost
}
