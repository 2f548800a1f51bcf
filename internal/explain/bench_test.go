// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math/rand/v2"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

// In a hierarchy every router reaches every other, and no way crosses the edge.
func TestHierarchy(t *testing.T) {
	n := Hierarchy(300, rand.New(rand.NewPCG(1, 1)))
	s := path.New(ginnel.MinRouterCost, n.routers, n.links)
	for _, from := range []int{0, 10, 299} {
		tree := s.Tree(n.routers[from].ID, path.Exclusions{})
		for _, to := range n.routers {
			p, ok := tree.To(to.ID)
			if !ok {
				t.Fatalf("%s does not reach %s", n.routers[from].ID, to.ID)
			}
			for _, r := range p.Routers[min(1, len(p.Routers)-1):max(1, len(p.Routers)-1)] {
				for _, known := range n.routers {
					if known.ID == r && known.NoTraversal && r != to.ID && r != n.routers[from].ID {
						t.Errorf("%v crosses %s", p.Routers, r)
					}
				}
			}
		}
	}
}

func TestBench(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	figures := Bench([]Network{Flat(50, 200, rng), Hierarchy(60, rng)}, 100, 10, rng)
	if len(figures) != 8 {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		if f.Routers == 0 || f.Links == 0 || f.What == "" || f.P50 <= 0 || f.P99 < f.P50 {
			t.Errorf("figure %+v", f)
		}
	}
}

func BenchmarkHierarchyTree(b *testing.B) {
	n := Hierarchy(3000, rand.New(rand.NewPCG(1, 1)))
	s := path.New(ginnel.MinRouterCost, n.routers, n.links)
	b.ReportAllocs()
	for b.Loop() {
		s.Tree(n.routers[2999].ID, path.Exclusions{})
	}
}
