// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"slices"

	"github.com/ginnel/ginnel"
)

// Tree holds the best path from one router to every other. It never changes:
// safe for use by any number of goroutines. A nil Tree reaches nothing.
type Tree struct {
	snapshot *Snapshot
	root     int32
	// cost of the best path to each router; unreached where there is none.
	cost []ginnel.Cost
	// best leads to the routers whose cost is below the greatest.
	best parents
	// capped leads to the routers whose cost is the greatest there is, where all
	// paths cost the same. Empty when there are none.
	capped parents
}

// parents say for each router where a path enters it from.
type parents struct {
	router []int32 // number of the router before, or none
	link   []int32 // index of the link between
}

const (
	unreached ginnel.Cost = -1
	none      int32       = -1
)

// Tree gives the best paths from a router to all others without the excluded
// routers and links; nil when the router itself is not there.
//
// It searches twice: once for the costs, then depth first over the hops that
// are part of some least-cost path, smaller ids first. Depth first reaches each
// router along the smallest of its simple paths, so ties come out exactly,
// hops that cost nothing included.
func (s *Snapshot) Tree(from ginnel.RouterID, x Exclusions) *Tree {
	root, ok := s.number[from]
	if !ok || slices.Contains(x.Routers, from) {
		return nil
	}
	t := &Tree{snapshot: s, root: root}
	sk := s.skip(x)
	t.cost = s.costs(root, sk)
	t.best = s.smallest(root, sk, func(r int32, e edge) bool {
		return t.cost[e.to] == t.cost[r].Add(e.cost)
	})
	if slices.Contains(t.cost, ginnel.MaxCost) {
		// A sum that saturates can hide that an earlier hop was not the best,
		// and every path to such a router ties: all hops take part.
		t.capped = s.smallest(root, sk, func(int32, edge) bool { return true })
	}
	return t
}

// To gives the best path to a router; false when there is none.
func (t *Tree) To(id ginnel.RouterID) (Path, bool) {
	cost, ok := t.Cost(id)
	if !ok {
		return Path{}, false
	}
	parent := t.best
	if cost == ginnel.MaxCost {
		parent = t.capped
	}
	hops := 0
	at := t.snapshot.number[id]
	for r := at; r != t.root; r = parent.router[r] {
		hops++
	}
	p := Path{Routers: make([]ginnel.RouterID, hops+1), Links: make([]ginnel.LinkID, hops), Cost: cost}
	p.Routers[0] = t.snapshot.ids[t.root]
	for ; hops > 0; hops-- {
		p.Routers[hops] = t.snapshot.ids[at]
		p.Links[hops-1] = t.snapshot.links[parent.link[at]].ID
		at = parent.router[at]
	}
	return p, true
}

// Cost gives the cost of the best path to a router; false when there is none.
func (t *Tree) Cost(id ginnel.RouterID) (ginnel.Cost, bool) {
	if t == nil {
		return 0, false
	}
	r, ok := t.snapshot.number[id]
	if !ok || t.cost[r] == unreached {
		return 0, false
	}
	return t.cost[r], true
}

// skip is Exclusions by number; nil slices exclude nothing.
type skip struct{ routers, links []bool }

func (s *Snapshot) skip(x Exclusions) skip {
	var sk skip
	if len(x.Routers) > 0 {
		sk.routers = make([]bool, len(s.ids))
		for _, id := range x.Routers {
			if r, ok := s.number[id]; ok {
				sk.routers[r] = true
			}
		}
	}
	if len(x.Links) > 0 {
		sk.links = make([]bool, len(s.links))
		for i, l := range s.links {
			sk.links[i] = slices.Contains(x.Links, l.ID)
		}
	}
	return sk
}

func (sk skip) edge(e edge) bool {
	return sk.routers != nil && sk.routers[e.to] || sk.links != nil && sk.links[e.link]
}

// costs is Dijkstra's algorithm: the cost of the best path to each router.
func (s *Snapshot) costs(root int32, sk skip) []ginnel.Cost {
	cost := make([]ginnel.Cost, len(s.ids))
	for i := range cost {
		cost[i] = unreached
	}
	cost[root] = 0
	q := make(queue, 0, len(s.ids))
	q.push(item{router: root})
	for len(q) > 0 {
		at := q.pop()
		if at.cost != cost[at.router] || at.router != root && !s.through[at.router] {
			continue
		}
		for _, e := range s.from(at.router) {
			c := at.cost.Add(e.cost)
			if (cost[e.to] == unreached || c < cost[e.to]) && !sk.edge(e) {
				cost[e.to] = c
				q.push(item{cost: c, router: e.to})
			}
		}
	}
	return cost
}

// smallest walks depth first over the hops that use admits, in order of ids.
func (s *Snapshot) smallest(root int32, sk skip, use func(int32, edge) bool) parents {
	p := parents{router: make([]int32, len(s.ids)), link: make([]int32, len(s.ids))}
	for i := range p.router {
		p.router[i] = none
	}
	p.router[root] = root
	next := slices.Clone(s.first[:len(s.ids)])
	stack := append(make([]int32, 0, len(s.ids)), root)
	for len(stack) > 0 {
		r := stack[len(stack)-1]
		if next[r] == s.first[r+1] || r != root && !s.through[r] {
			stack = stack[:len(stack)-1]
			continue
		}
		e := s.edges[next[r]]
		next[r]++
		if p.router[e.to] == none && use(r, e) && !sk.edge(e) {
			p.router[e.to], p.link[e.to] = r, e.link
			stack = append(stack, e.to)
		}
	}
	return p
}
