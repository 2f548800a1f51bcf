// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// Router is a router as a path sees it.
type Router struct {
	ID ginnel.RouterID
	// Cost of entering the router; the snapshot's least router cost counts where it is higher.
	Cost ginnel.Cost
	// NoTraversal: only first or last on a path.
	NoTraversal bool
	// Connected: a router that is not connected is not in the snapshot.
	Connected bool
}

// Snapshot is the topology at one instant. It never changes: safe for use by
// any number of goroutines.
type Snapshot struct {
	// ids of the connected routers in ascending order. A router's place here is
	// its number in every other slice, so comparing numbers compares ids.
	ids    []ginnel.RouterID
	number map[ginnel.RouterID]int32
	// entry is what entering the router costs.
	entry   []ginnel.Cost
	through []bool // false for a router that is not to be traversed
	// links that are up between two connected routers, in ascending order of id.
	links []ginnel.Link
	// edges[first[r]:first[r+1]] leave router r, ordered by the router they
	// lead to, then by link id.
	first []int32
	edges []edge
}

// edge is a link in one direction.
type edge struct {
	to   int32       // number of the router entered
	link int32       // index in links
	cost ginnel.Cost // of the hop: link and router entered
}

// LinkCost gives the price of a link: its static cost, and its round-trip time
// or, without a sample, what stands in for it.
func LinkCost(l ginnel.Link) ginnel.Cost {
	cost := max(0, l.StaticCost)
	if !l.Measured {
		return cost.Add(ginnel.UnmeasuredLinkCost)
	}
	return cost.Add(ginnel.RTTCost(time.Duration(l.RTT)))
}

// New gives the snapshot of routers and links. Ids are unique within each; a
// link that is down, or that leads to a router which is unknown, not connected
// or its own other end, is left out. leastRouterCost is the least that entering
// a router costs. Nothing passed in is kept or changed.
func New(leastRouterCost ginnel.Cost, routers []Router, links []ginnel.Link) *Snapshot {
	s := &Snapshot{number: make(map[ginnel.RouterID]int32, len(routers))}
	s.addRouters(leastRouterCost, routers)
	s.addLinks(links)
	return s
}

func (s *Snapshot) addRouters(least ginnel.Cost, routers []Router) {
	routers = slices.DeleteFunc(slices.Clone(routers), func(r Router) bool { return !r.Connected })
	slices.SortFunc(routers, func(a, b Router) int { return cmp.Compare(a.ID, b.ID) })
	for i, r := range routers {
		s.number[r.ID] = int32(i)
		s.ids = append(s.ids, r.ID)
		s.entry = append(s.entry, max(0, r.Cost, least))
		s.through = append(s.through, !r.NoTraversal)
	}
}

func (s *Snapshot) addLinks(links []ginnel.Link) {
	for _, l := range links {
		_, knownA := s.number[l.A]
		_, knownB := s.number[l.B]
		if l.Up && knownA && knownB && l.A != l.B {
			s.links = append(s.links, l)
		}
	}
	slices.SortFunc(s.links, func(a, b ginnel.Link) int { return cmp.Compare(a.ID, b.ID) })

	s.first = make([]int32, len(s.ids)+1)
	for _, l := range s.links {
		s.first[s.number[l.A]+1]++
		s.first[s.number[l.B]+1]++
	}
	for i := range s.ids {
		s.first[i+1] += s.first[i]
	}
	s.edges = make([]edge, 2*len(s.links))
	free := slices.Clone(s.first)
	for i, l := range s.links {
		a, b, cost := s.number[l.A], s.number[l.B], LinkCost(l)
		s.edges[free[a]] = edge{to: b, link: int32(i), cost: cost.Add(s.entry[b])}
		s.edges[free[b]] = edge{to: a, link: int32(i), cost: cost.Add(s.entry[a])}
		free[a]++
		free[b]++
	}
	for r := range s.ids {
		slices.SortFunc(s.from(int32(r)), func(x, y edge) int {
			return cmp.Or(cmp.Compare(x.to, y.to), cmp.Compare(x.link, y.link))
		})
	}
}

// from gives the edges that leave router r.
func (s *Snapshot) from(r int32) []edge { return s.edges[s.first[r]:s.first[r+1]] }

// Connected reports whether the router is in the snapshot.
func (s *Snapshot) Connected(id ginnel.RouterID) bool {
	_, ok := s.number[id]
	return ok
}

// Len gives the number of connected routers and of links between them.
func (s *Snapshot) Len() (routers, links int) { return len(s.ids), len(s.links) }
