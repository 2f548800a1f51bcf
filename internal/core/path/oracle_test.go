// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

// topology is what a snapshot is made of, for the oracles to read.
type topology struct {
	least   ginnel.Cost
	routers []Router
	links   []ginnel.Link
	x       Exclusions
}

func (tp topology) router(id ginnel.RouterID) *Router {
	for i, r := range tp.routers {
		if r.ID == id && r.Connected && !slices.Contains(tp.x.Routers, id) {
			return &tp.routers[i]
		}
	}
	return nil
}

// hops gives every hop that may leave router at.
func (tp topology) hops(at ginnel.RouterID) []Hop {
	var hops []Hop
	for _, l := range tp.links {
		to := l.B
		if l.B == at {
			to = l.A
		}
		r := tp.router(to)
		if l.A != at && l.B != at || l.A == l.B || r == nil || !l.Up || slices.Contains(tp.x.Links, l.ID) {
			continue
		}
		hops = append(hops, Hop{Link: l.ID, Router: to, LinkCost: LinkCost(l), RouterCost: max(r.Cost, tp.least)})
	}
	return hops
}

// better reports whether p is before q: cost, router ids, link ids.
func better(p, q Path) bool {
	if p.Cost != q.Cost {
		return p.Cost < q.Cost
	}
	if c := slices.Compare(p.Routers, q.Routers); c != 0 {
		return c < 0
	}
	return slices.Compare(p.Links, q.Links) < 0
}

func extend(p Path, h Hop) Path {
	return Path{
		Routers: append(slices.Clone(p.Routers), h.Router),
		Links:   append(slices.Clone(p.Links), h.Link),
		Cost:    p.Cost.Add(h.LinkCost.Add(h.RouterCost)),
	}
}

// enumerate tries every simple path from p on and keeps the best to each router.
func (tp topology) enumerate(p Path, best map[ginnel.RouterID]Path) {
	at := p.Routers[len(p.Routers)-1]
	if b, ok := best[at]; !ok || better(p, b) {
		best[at] = p
	}
	if len(p.Links) > 0 && tp.router(at).NoTraversal {
		return
	}
	for _, h := range tp.hops(at) {
		if !p.HasRouter(h.Router) {
			tp.enumerate(extend(p, h), best)
		}
	}
}

// dijkstra is the naive one: whole paths as labels, a scan for the least.
func (tp topology) dijkstra(from ginnel.RouterID) map[ginnel.RouterID]Path {
	open := map[ginnel.RouterID]Path{from: {Routers: []ginnel.RouterID{from}}}
	done := map[ginnel.RouterID]Path{}
	for len(open) > 0 {
		var at ginnel.RouterID
		for id, p := range open {
			if at == "" || better(p, open[at]) {
				at = id
			}
		}
		p := open[at]
		delete(open, at)
		done[at] = p
		if at != from && tp.router(at).NoTraversal {
			continue
		}
		for _, h := range tp.hops(at) {
			if _, ok := done[h.Router]; ok {
				continue
			}
			q := extend(p, h)
			if old, ok := open[h.Router]; !ok || better(q, old) {
				open[h.Router] = q
			}
		}
	}
	return done
}

// drawTopology draws a graph of up to n routers and m links whose costs come
// from few values, so that ties are common.
func drawTopology(t *rapid.T, n, m int, costs []ginnel.Cost) topology {
	tp := topology{least: rapid.SampledFrom([]ginnel.Cost{0, 10}).Draw(t, "least")}
	count := rapid.IntRange(1, n).Draw(t, "routers")
	cost := rapid.SampledFrom(costs)
	for i := range count {
		tp.routers = append(tp.routers, Router{
			ID:          ginnel.RouterID(fmt.Sprintf("r%d", i)), // r10 sorts before r2
			Cost:        cost.Draw(t, "router cost"),
			NoTraversal: rapid.IntRange(0, 5).Draw(t, "no traversal") == 0,
			Connected:   rapid.IntRange(0, 9).Draw(t, "connected") > 0,
		})
	}
	router := rapid.IntRange(0, count-1)
	for i := range rapid.IntRange(0, m).Draw(t, "links") {
		tp.links = append(tp.links, ginnel.Link{
			ID:         ginnel.LinkID(fmt.Sprintf("l%d", (i*7)%97)),
			A:          tp.routers[router.Draw(t, "a")].ID,
			B:          tp.routers[router.Draw(t, "b")].ID,
			StaticCost: cost.Draw(t, "link cost"),
			Measured:   rapid.IntRange(0, 3).Draw(t, "measured") > 0,
			RTT:        ginnel.Duration(rapid.IntRange(0, 1).Draw(t, "rtt")),
			Up:         rapid.IntRange(0, 9).Draw(t, "up") > 0,
		})
	}
	if rapid.Bool().Draw(t, "exclude") {
		tp.x.Routers = []ginnel.RouterID{tp.routers[router.Draw(t, "excluded router")].ID, "unknown"}
		tp.x.Links = []ginnel.LinkID{ginnel.LinkID(fmt.Sprintf("l%d", rapid.IntRange(0, 96).Draw(t, "excluded link")))}
	}
	return tp
}

// checkAll compares the trees from every router with want.
func checkAll(t *rapid.T, tp topology, want func(from ginnel.RouterID) map[ginnel.RouterID]Path) {
	trees := NewTrees(New(tp.least, tp.routers, tp.links))
	for _, from := range tp.routers {
		best := map[ginnel.RouterID]Path{}
		if tp.router(from.ID) != nil {
			best = want(from.ID)
		}
		tree := trees.From(from.ID, tp.x)
		for _, to := range tp.routers {
			got, ok := tree.To(to.ID)
			w, wok := best[to.ID]
			if ok != wok || !slices.Equal(got.Routers, w.Routers) || !slices.Equal(got.Links, w.Links) || got.Cost != w.Cost {
				t.Fatalf("%s to %s: got %v %v, want %v %v", from.ID, to.ID, got, ok, w, wok)
			}
		}
	}
}

func TestTreeIsTheBestOfAllSimplePaths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SampledFrom([][]ginnel.Cost{
			{0},
			{0, 1},
			{0, 1, 2, 3, 10},
			{0, 1, ginnel.MaxCost - 1, ginnel.MaxCost},
			{ginnel.MaxCost / 3, ginnel.MaxCost/3 + 1, ginnel.MaxCost / 2},
		}).Draw(t, "costs")
		tp := drawTopology(t, 6, 10, costs)
		checkAll(t, tp, func(from ginnel.RouterID) map[ginnel.RouterID]Path {
			best := map[ginnel.RouterID]Path{}
			tp.enumerate(Path{Routers: []ginnel.RouterID{from}}, best)
			return best
		})
	})
}

func TestTreeEqualsNaiveDijkstra(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SampledFrom([][]ginnel.Cost{{0, 1}, {1, 2, 3}, {1}}).Draw(t, "costs")
		tp := drawTopology(t, 25, 90, costs)
		checkAll(t, tp, tp.dijkstra)
	})
}
