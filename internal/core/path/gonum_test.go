// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gonum.org/v1/gonum/graph"
	gonum "gonum.org/v1/gonum/graph/path"
	"gonum.org/v1/gonum/graph/simple"

	"github.com/ginnel/ginnel"
)

// seeded gives a source whose seed is drawn anew in each run, and printed where a
// test fails.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// drawn gives a random network of measured links with costs from few values, some
// of them parallel; hardly any path is alone in its cost.
func drawn(rng *rand.Rand, n, m, costs int) topology {
	tp := topology{least: ginnel.Units(rng.Int64N(3))}
	for i := range n {
		tp.routers = append(tp.routers, Router{
			ID: ginnel.RouterID(fmt.Sprintf("r%d", i)), Cost: ginnel.Units(rng.Int64N(int64(costs))),
			NoTraversal: rng.IntN(6) == 0, Connected: rng.IntN(20) > 0,
		})
	}
	for i := range m {
		a, b := rng.IntN(n), rng.IntN(n)
		if i > 0 && rng.IntN(4) == 0 { // parallel to the one before
			a, b = slices.Index(ids(tp.routers), tp.links[i-1].B), slices.Index(ids(tp.routers), tp.links[i-1].A)
		}
		tp.links = append(tp.links, ginnel.Link{
			ID: ginnel.LinkID(fmt.Sprintf("l%d", (i*7919)%m)), A: tp.routers[a].ID, B: tp.routers[b].ID,
			StaticCost: ginnel.Units(1 + rng.Int64N(int64(costs))), Measured: true,
			RTT: ginnel.Duration(time.Duration(rng.Int64N(2)) * time.Millisecond), Up: rng.IntN(20) > 0,
		})
	}
	return tp
}

func ids(routers []Router) (list []ginnel.RouterID) {
	for _, r := range routers {
		list = append(list, r.ID)
	}
	return list
}

// graph gives the network as gonum can take it, for paths from one router: the
// price of entering a router is on the edge that leads to it, of parallel links the
// cheapest is left, and from a router that is not to be crossed no edge leads on.
func (tp topology) graph(from ginnel.RouterID) *simple.WeightedDirectedGraph {
	g := simple.NewWeightedDirectedGraph(0, -1)
	at := make(map[ginnel.RouterID]int)
	for i, id := range ids(tp.routers) {
		at[id] = i
	}
	number := func(id ginnel.RouterID) simple.Node { return simple.Node(at[id]) }
	for _, r := range tp.routers {
		if tp.router(r.ID) != nil {
			g.AddNode(number(r.ID))
		}
	}
	for _, r := range tp.routers {
		if tp.router(r.ID) == nil || r.NoTraversal && r.ID != from {
			continue
		}
		for _, h := range tp.hops(r.ID) {
			cost := float64(h.LinkCost.Add(h.RouterCost)) // whole numbers below 2^53: exact
			a, b := number(r.ID), number(h.Router)
			if old := g.WeightedEdge(a.ID(), b.ID()); old == nil || cost < old.Weight() {
				g.SetWeightedEdge(g.NewWeightedEdge(a, b, cost))
			}
		}
	}
	return g
}

// cheapest gives the link from a to b of least cost, and of those the smallest id.
func (tp topology) cheapest(a, b ginnel.RouterID) ginnel.LinkID {
	var best *Hop
	for _, h := range tp.hops(a) {
		if h.Router == b && (best == nil || h.LinkCost < best.LinkCost || h.LinkCost == best.LinkCost && h.Link < best.Link) {
			best = &h
		}
	}
	return best.Link
}

// The costs of all paths are those that gonum finds, and the path is the smallest
// of all that gonum finds at that cost.
func TestTreeEqualsGonum(t *testing.T) {
	rng := seeded(t)
	for range 6 {
		tp := drawn(rng, 20, 50, 3)
		trees := NewTrees(New(tp.least, tp.routers, tp.links))
		for _, from := range tp.routers {
			if tp.router(from.ID) == nil {
				continue
			}
			g := tp.graph(from.ID)
			all := gonum.DijkstraAllFrom(g.Node(int64(slices.Index(ids(tp.routers), from.ID))), g)
			for n, to := range tp.routers {
				got, ok := trees.From(from.ID, Exclusions{}).To(to.ID)
				want := Path{}
				if tp.router(to.ID) != nil {
					nodes, weight := all.AllTo(int64(n))
					want = tp.smallest(nodes, ginnel.Cost(max(0, min(weight, 1e15))))
				}
				if ok != (len(want.Routers) > 0) || got.Cost != want.Cost || !slices.Equal(got.Routers, want.Routers) || !slices.Equal(got.Links, want.Links) {
					t.Fatalf("%s to %s: got %v %v, want %v", from.ID, to.ID, got, ok, want)
				}
			}
		}
	}
}

// smallest gives of several ways of one cost that of the smallest routers.
func (tp topology) smallest(ways [][]graph.Node, cost ginnel.Cost) (best Path) {
	for _, way := range ways {
		var routers []ginnel.RouterID
		for _, n := range way {
			routers = append(routers, tp.routers[n.ID()].ID)
		}
		if best.Routers == nil || slices.Compare(routers, best.Routers) < 0 {
			best = Path{Routers: routers, Cost: cost}
		}
	}
	for i := 1; i < len(best.Routers); i++ {
		best.Links = append(best.Links, tp.cheapest(best.Routers[i-1], best.Routers[i]))
	}
	return best
}

// A large network has the costs that gonum finds.
func TestLargeTreeEqualsGonum(t *testing.T) {
	rng := seeded(t)
	tp := drawn(rng, 200, 800, 50)
	from := tp.routers[slices.IndexFunc(tp.routers, func(r Router) bool { return r.Connected })].ID
	g := tp.graph(from)
	all := gonum.DijkstraFrom(g.Node(int64(slices.Index(ids(tp.routers), from))), g)
	tree := New(tp.least, tp.routers, tp.links).Tree(from, Exclusions{})
	reached := 0
	for n, to := range tp.routers {
		got, ok := tree.Cost(to.ID)
		want := all.WeightTo(int64(n))
		if tp.router(to.ID) != nil && want < 1e15 {
			reached++
			if !ok || got != ginnel.Cost(want) {
				t.Errorf("to %s: got %v %v, want %v", to.ID, got, ok, ginnel.Cost(want))
			}
		} else if ok {
			t.Errorf("to %s: got %v, want none", to.ID, got)
		}
	}
	if reached < 50 {
		t.Errorf("only %d routers were reached", reached)
	}
}

// The order in which routers and links come, and which end of a link comes first,
// changes nothing.
func TestOrderChangesNothing(t *testing.T) {
	rng := seeded(t)
	for range 8 {
		tp := drawn(rng, 16, 40, 2)
		before := New(tp.least, tp.routers, tp.links)
		rng.Shuffle(len(tp.routers), func(i, j int) { tp.routers[i], tp.routers[j] = tp.routers[j], tp.routers[i] })
		rng.Shuffle(len(tp.links), func(i, j int) { tp.links[i], tp.links[j] = tp.links[j], tp.links[i] })
		for i := range tp.links {
			if rng.IntN(2) == 0 {
				tp.links[i].A, tp.links[i].B = tp.links[i].B, tp.links[i].A
			}
		}
		after := New(tp.least, tp.routers, tp.links)
		for _, from := range tp.routers {
			for _, to := range tp.routers {
				p, pok := before.Tree(from.ID, Exclusions{}).To(to.ID)
				q, qok := after.Tree(from.ID, Exclusions{}).To(to.ID)
				if pok != qok || fmt.Sprint(p) != fmt.Sprint(q) {
					t.Fatalf("%s to %s: %v, and in another order %v", from.ID, to.ID, p, q)
				}
			}
		}
	}
}

// What a snapshot was made of may change under its readers, and so may the paths
// that they were given: it does not. The race detector watches.
func TestSnapshotNeverChanges(t *testing.T) {
	rng := seeded(t)
	tp := drawn(rng, 20, 60, 5)
	s := New(tp.least, tp.routers, tp.links)
	read := func(from Router) string {
		text := ""
		tree := s.Tree(from.ID, Exclusions{})
		for i := range 20 {
			p, ok := tree.To(ginnel.RouterID(fmt.Sprintf("r%d", i)))
			text += fmt.Sprintln(p, ok, s.Hops(p))
			for k := range p.Routers { // a reader may do with its path what it likes
				p.Routers[k] = "mine"
			}
			for k := range p.Links {
				p.Links[k] = "mine"
			}
		}
		return text
	}
	var want []string
	for _, r := range tp.routers {
		want = append(want, read(r))
	}
	routers := slices.Clone(tp.routers)
	done := make(chan struct{})
	results := make(chan string, 4)
	for range cap(results) {
		go func() {
			for {
				for i, r := range routers {
					if got := read(r); got != want[i] {
						results <- fmt.Sprintf("from %s: got %s, want %s", r.ID, got, want[i])
						return
					}
				}
				select {
				case <-done:
					results <- ""
					return
				default:
				}
			}
		}()
	}
	for range 20 {
		for i := range tp.links {
			tp.links[i] = ginnel.Link{ID: "other", A: tp.routers[0].ID, B: tp.routers[1].ID, Up: i%2 == 0}
		}
		for i := range tp.routers {
			tp.routers[i].Cost, tp.routers[i].Connected = ginnel.Units(int64(i)), i%2 == 0
		}
		_ = New(tp.least, tp.routers, tp.links).Tree(tp.routers[0].ID, Exclusions{})
	}
	close(done)
	for range cap(results) {
		if problem := <-results; problem != "" {
			t.Error(problem)
		}
	}
}

// L40: costs of 2e9 and 2e9 against 1. Whatever they are added up in, and were
// they the greatest there are, the cheap way is taken and no sum is negative.
func TestL40_CostsDoNotOverflow(t *testing.T) {
	for _, dear := range []int64{2e9, int64(ginnel.MaxCost / ginnel.Unit), int64(ginnel.MaxCost)} {
		links := []ginnel.Link{link("ac", "A", "C", dear, 0), link("cb", "C", "B", dear, 0), link("x", "A", "B", 1, 0)}
		tree := New(ginnel.MinRouterCost, routers("A", "B", "C"), links).Tree("A", Exclusions{})
		if p, ok := tree.To("B"); !ok || p.Cost != ginnel.Units(11) || len(p.Links) != 1 {
			t.Errorf("%d: the path is %v %v", dear, p, ok)
		}
		only := New(ginnel.MinRouterCost, routers("A", "B", "C"), links[:2]).Tree("A", Exclusions{})
		p, ok := only.To("B")
		if !ok || p.Cost < ginnel.Units(2e9) || p.Cost > ginnel.MaxCost || len(p.Links) != 2 {
			t.Errorf("%d: the dear path is %v %v", dear, p, ok)
		}
		if dear == 2e9 && p.Cost != ginnel.Units(4e9+20) {
			t.Errorf("2e9 and 2e9 make %v", p.Cost)
		}
	}
}
