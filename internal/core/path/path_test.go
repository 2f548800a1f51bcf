// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

func link(id ginnel.LinkID, a, b ginnel.RouterID, static int64, rtt time.Duration) ginnel.Link {
	return ginnel.Link{ID: id, A: a, B: b, StaticCost: ginnel.Units(static), RTT: ginnel.Duration(rtt), Measured: true, Up: true}
}

func routers(ids ...ginnel.RouterID) []Router {
	var out []Router
	for _, id := range ids {
		out = append(out, Router{ID: id, Connected: true})
	}
	return out
}

// pathCase is a network and the path from A to B in it.
type pathCase struct {
	name    string
	routers []Router
	links   []ginnel.Link
	want    string
}

func pathCases() []pathCase {
	unmeasured := link("x", "A", "B", 1, 0)
	unmeasured.Measured = false
	down := link("x", "A", "B", 1, 0)
	down.Up = false
	return []pathCase{
		{
			"ingress costs nothing",
			[]Router{{ID: "A", Cost: ginnel.Units(500), Connected: true}, {ID: "B", Connected: true}},
			[]ginnel.Link{link("x", "A", "B", 1, 5*time.Millisecond)},
			"[A B] [x] 16",
		},
		{
			"router cost above the least",
			[]Router{{ID: "A", Connected: true}, {ID: "B", Cost: ginnel.Units(12), Connected: true}},
			[]ginnel.Link{link("x", "A", "B", 1, 0)},
			"[A B] [x] 13",
		},
		{
			"parallel links, the cheaper", routers("A", "B"),
			[]ginnel.Link{link("x", "A", "B", 2, 0), link("y", "B", "A", 1, 0)},
			"[A B] [y] 11",
		},
		{
			"parallel links, the smaller id", routers("A", "B"),
			[]ginnel.Link{link("y", "A", "B", 1, 0), link("x", "A", "B", 1, 0)},
			"[A B] [x] 11",
		},
		{
			"L40: no overflow", routers("A", "B", "C"),
			[]ginnel.Link{link("ac", "A", "C", 2e9, 0), link("cb", "C", "B", 2e9, 0), link("x", "A", "B", 1, 0)},
			"[A B] [x] 11",
		},
		{
			"L41: the measured link", routers("A", "B"),
			[]ginnel.Link{unmeasured, link("y", "A", "B", 1, 5*time.Millisecond)},
			"[A B] [y] 16",
		},
		{"unmeasured but alone", routers("A", "B"), []ginnel.Link{unmeasured}, "[A B] [x] 1011"},
		{"down", routers("A", "B"), []ginnel.Link{down}, "none"},
		{
			"no router between",
			[]Router{{ID: "A", Connected: true}, {ID: "B", Connected: true}, {ID: "T", Connected: false}},
			[]ginnel.Link{link("x", "A", "T", 1, 0), link("y", "T", "B", 1, 0)},
			"none",
		},
		{
			"no traversal",
			[]Router{{ID: "A", NoTraversal: true, Connected: true}, {ID: "B", NoTraversal: true, Connected: true}, {ID: "T", NoTraversal: true, Connected: true}},
			[]ginnel.Link{link("x", "A", "T", 1, 0), link("y", "T", "B", 1, 0)},
			"none",
		},
		{
			"no traversal at the ends",
			[]Router{{ID: "A", NoTraversal: true, Connected: true}, {ID: "B", NoTraversal: true, Connected: true}, {ID: "T", Connected: true}},
			[]ginnel.Link{link("x", "A", "T", 1, 0), link("y", "T", "B", 1, 0)},
			"[A T B] [x y] 22",
		},
		{
			"capped costs tie by id", routers("A", "B", "C"),
			[]ginnel.Link{
				link("ab", "A", "B", int64(ginnel.MaxCost), 0), link("ca", "C", "A", 0, 0), link("cb", "C", "B", int64(ginnel.MaxCost), 0),
				link("aa", "A", "B", int64(ginnel.MaxCost), 0),
			},
			"[A B] [aa] 9223372036854.775",
		},
	}
}

func TestPaths(t *testing.T) {
	for _, c := range pathCases() {
		t.Run(c.name, func(t *testing.T) {
			p, ok := New(ginnel.MinRouterCost, c.routers, c.links).Tree("A", Exclusions{}).To("B")
			got := fmt.Sprintf("%v %v %v", p.Routers, p.Links, p.Cost)
			if !ok {
				got = "none"
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestEnds(t *testing.T) {
	s := New(0, routers("A", "B"), nil)
	if p, ok := s.Tree("A", Exclusions{}).To("A"); !ok || p.Cost != 0 || len(p.Links) != 0 || !slices.Equal(p.Routers, []ginnel.RouterID{"A"}) {
		t.Errorf("to itself: got %v %v, want [A] at no cost", p, ok)
	}
	if tree := s.Tree("X", Exclusions{}); tree != nil {
		t.Error("an unknown router has a tree")
	}
	if _, ok := s.Tree("A", Exclusions{Routers: []ginnel.RouterID{"A"}}).To("A"); ok {
		t.Error("an excluded ingress reaches itself")
	}
	if !s.Connected("B") || s.Connected("X") {
		t.Error("Connected is wrong")
	}
	if r, l := s.Len(); r != 2 || l != 0 {
		t.Errorf("got %d routers and %d links, want 2 and 0", r, l)
	}
}

func TestHopsAddUp(t *testing.T) {
	s := New(ginnel.MinRouterCost, routers("A", "B", "C"), []ginnel.Link{link("ab", "A", "B", 1, 2*time.Millisecond), link("bc", "B", "C", 3, 0)})
	p, _ := s.Tree("A", Exclusions{}).To("C")
	want := []Hop{{"ab", "B", ginnel.Units(3), ginnel.Units(10)}, {"bc", "C", ginnel.Units(3), ginnel.Units(10)}}
	if got := s.Hops(p); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !p.HasRouter("B") || p.HasRouter("D") || !p.HasLink("bc") || p.HasLink("cd") {
		t.Error("HasRouter or HasLink is wrong")
	}
	p.Links[1] = "gone"
	if got := s.Hops(p); len(got) != 1 {
		t.Errorf("a link that is gone: got %v, want the first hop alone", got)
	}
}

func TestTreesAreKept(t *testing.T) {
	trees := NewTrees(New(0, routers("A", "B"), []ginnel.Link{link("ab", "A", "B", 1, 0)}))
	first := trees.From("A", Exclusions{})
	if trees.From("A", Exclusions{}) != first {
		t.Error("the tree was computed again")
	}
	if x := trees.From("A", Exclusions{Links: []ginnel.LinkID{"ab"}}); x == first {
		t.Error("exclusions gave the kept tree")
	}
	if trees.From("X", Exclusions{}) != nil {
		t.Error("an unknown router has a tree")
	}
	if allocs := testing.AllocsPerRun(100, func() { _, _ = trees.From("A", Exclusions{}).Cost("B") }); allocs != 0 {
		t.Errorf("a cost from a kept tree allocates %v times", allocs)
	}
}

func TestRTT(t *testing.T) {
	var r RTT
	if r.Measured() {
		t.Error("measured without a sample")
	}
	for i, want := range []time.Duration{80, 80, 80} {
		if got := r.Add(80); got != want {
			t.Errorf("sample %d: got %d, want %d", i, got, want)
		}
	}
	for range 200 {
		r.Add(8000)
	}
	if got := r.Smoothed(); got < 7900 || got > 8000 {
		t.Errorf("got %d after 200 samples of 8000", got)
	}
	if r.Add(-5); r.Smoothed() < 0 || !r.Measured() {
		t.Errorf("got %d after a negative sample", r.Smoothed())
	}
}

func TestPublished(t *testing.T) {
	const ms = time.Millisecond
	start := time.Unix(1000, 0)
	steps := []struct {
		at, rtt time.Duration
		moved   bool
	}{
		{0, 20 * ms, true},                 // the first at once
		{time.Second, 40 * ms, false},      // within 5 s
		{5 * time.Second, 22 * ms, false},  // exactly a tenth
		{6 * time.Second, 23 * ms, true},   // more than a tenth and than 1 ms
		{12 * time.Second, 21 * ms, false}, // less than a tenth
		{13 * time.Second, 5 * ms, true},
		{19 * time.Second, 6 * ms, false}, // a fifth, but 1 ms
		{20 * time.Second, 6*ms + 1, true},
	}
	var p Published
	if _, ok := p.RTT(); ok {
		t.Error("measured at first")
	}
	for _, s := range steps {
		if got := p.Offer(start.Add(s.at), s.rtt); got != s.moved {
			t.Errorf("at %v, %v: moved %v, want %v", s.at, s.rtt, got, s.moved)
		}
	}
	if rtt, ok := p.RTT(); !ok || rtt != 6*ms+1 {
		t.Errorf("got %v %v", rtt, ok)
	}
	if p.Reset(); p.measured {
		t.Error("measured after Reset")
	}
}

// Noise of 2 ms for ten minutes corrects the first sample, which counts as it
// is and may be 2 ms off, at most once, and moves the published time no more.
func TestL42_NoiseIsNotPublished(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var r RTT
		var p Published
		changes := 0
		start := time.Unix(1000, 0)
		for i := range 600 {
			sample := 20*time.Millisecond + time.Duration(rng.Int64N(int64(4*time.Millisecond))) - 2*time.Millisecond
			if p.Offer(start.Add(time.Duration(i)*time.Second), r.Add(sample)) {
				changes++
			}
		}
		if changes < 1 || changes > 2 {
			t.Errorf("seed %d: published %d times, want once or twice", seed, changes)
		}
	}
}

// big gives the network that the budgets are stated for.
func big() *Snapshot {
	rng := rand.New(rand.NewPCG(1, 2))
	var rs []Router
	var ls []ginnel.Link
	for i := range 1000 {
		rs = append(rs, Router{ID: ginnel.RouterID(fmt.Sprintf("router-%d", i)), Connected: true})
	}
	for i := range 10000 {
		a, b := rng.IntN(1000), rng.IntN(1000)
		ls = append(ls, link(ginnel.LinkID(fmt.Sprintf("link-%d", i)), rs[a].ID, rs[b].ID, 1, time.Duration(rng.Int64N(1e8))))
	}
	return New(ginnel.MinRouterCost, rs, ls)
}

func BenchmarkTree(b *testing.B) {
	s := big()
	b.ReportAllocs()
	for b.Loop() {
		s.Tree("router-7", Exclusions{})
	}
}

func BenchmarkTo(b *testing.B) {
	tree := big().Tree("router-7", Exclusions{})
	b.ReportAllocs()
	for b.Loop() {
		tree.To("router-990")
	}
}

// L43: a router's cost is raised from 10 to 1000; its paths are worth leaving,
// and the one taken instead is not worth leaving again.
func TestL43_RaisedCostMovesOnce(t *testing.T) {
	links := []ginnel.Link{link("ab", "A", "B", 1, 0), link("bd", "B", "D", 1, 0), link("ac", "A", "C", 2, 0), link("cd", "C", "D", 2, 0)}
	rs := routers("A", "B", "C", "D")
	before, _ := New(ginnel.MinRouterCost, rs, links).Tree("A", Exclusions{}).To("D")
	rs[1].Cost = ginnel.Units(1000)
	s := New(ginnel.MinRouterCost, rs, links)
	now, ok := s.CostOf(before)
	best, _ := s.Tree("A", Exclusions{}).To("D")
	if !ok || now != ginnel.Units(1012) || best.HasRouter("B") || !WorthMoving(now, best.Cost) {
		t.Errorf("the old path costs %v %v, the best is %v", now, ok, best)
	}
	if again, _ := s.CostOf(best); WorthMoving(again, best.Cost) || again != best.Cost {
		t.Errorf("the new path costs %v, and is left again", again)
	}
	if WorthMoving(ginnel.Units(34), ginnel.Units(26)) || WorthMoving(ginnel.Units(100), ginnel.Units(85)) {
		t.Error("a small gain moves circuits")
	}
	if _, ok := New(0, rs, links[1:]).CostOf(before); ok {
		t.Error("a path without its link has a cost")
	}
	if _, ok := New(0, nil, nil).CostOf(before); ok {
		t.Error("a path without its ingress has a cost")
	}
	if _, ok := s.CostOf(Path{}); ok {
		t.Error("no path has a cost")
	}
}
