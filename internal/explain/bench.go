// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/path"
	engine "github.com/ginnel/ginnel/internal/core/terminator"
)

// Network is a made-up network to measure the path engine on.
type Network struct {
	Name    string
	routers []path.Router
	links   []ginnel.Link
}

// Figure is one thing measured on one network.
type Figure struct {
	Network string          `json:"network"`
	Routers int             `json:"routers"`
	Links   int             `json:"links"`
	What    string          `json:"what"`
	P50     ginnel.Duration `json:"p50"`
	P99     ginnel.Duration `json:"p99"`
	// Target that P50 should stay below; 0: none.
	Target ginnel.Duration `json:"target,omitempty"`
}

// The budgets of the path engine, for networks of a thousand routers and more.
const (
	decisionTarget = ginnel.Duration(5 * time.Microsecond)
	treeTarget     = ginnel.Duration(2 * time.Millisecond)
)

// Flat gives a network whose links join routers at random.
func Flat(routers, links int, rng *rand.Rand) Network {
	n := Network{Name: "flat"}
	for range routers {
		n.router(false)
	}
	for range links {
		n.link(rng.IntN(routers), rng.IntN(routers), 100*time.Millisecond, rng)
	}
	return n
}

// Hierarchy gives a network as operators build it: a meshed core, regions with
// two links to the core and one to the next region, and all other routers at the
// edge, with a link to each of two regional ones; nothing crosses an edge router.
func Hierarchy(routers int, rng *rand.Rand) Network {
	n := Network{Name: "hierarchical"}
	core := max(2, routers/150)
	regions := max(2, routers/10)
	for i := range routers {
		n.router(i >= core+regions)
	}
	for a := range core {
		for b := range a {
			n.link(a, b, 80*time.Millisecond, rng)
		}
	}
	for r := range regions {
		n.link(core+r, r%core, 10*time.Millisecond, rng)
		n.link(core+r, (r+1+rng.IntN(core-1))%core, 10*time.Millisecond, rng)
		n.link(core+r, core+(r+1)%regions, 10*time.Millisecond, rng)
	}
	for i := core + regions; i < routers; i++ {
		r := rng.IntN(regions)
		n.link(i, core+r, 5*time.Millisecond, rng)
		n.link(i, core+(r+1)%regions, 5*time.Millisecond, rng)
	}
	return n
}

func (n *Network) router(edge bool) {
	id := ginnel.RouterID(fmt.Sprintf("router-%d", len(n.routers)))
	n.routers = append(n.routers, path.Router{ID: id, Connected: true, NoTraversal: edge})
}

func (n *Network) link(a, b int, most time.Duration, rng *rand.Rand) {
	n.links = append(n.links, ginnel.Link{
		ID: ginnel.LinkID(fmt.Sprintf("link-%d", len(n.links))), A: n.routers[a].ID, B: n.routers[b].ID,
		StaticCost: ginnel.DefaultLinkCost, RTT: ginnel.Duration(rng.Int64N(int64(most))), Measured: true, Up: true,
	})
}

// Bench measures, on each network, how long a dial's decision among four
// terminators takes when the tree of its ingress is there, and how long a tree and
// a snapshot take; each so many times.
func Bench(networks []Network, decisions, trees int, rng *rand.Rand) []Figure {
	var all []Figure
	for _, n := range networks {
		figure := func(what string, target ginnel.Duration, times int, once func()) {
			took := make([]time.Duration, times)
			for i := range took {
				began := time.Now()
				once()
				took[i] = time.Since(began)
			}
			slices.Sort(took)
			all = append(all, Figure{
				Network: n.Name, Routers: len(n.routers), Links: len(n.links), What: what, Target: target,
				P50: ginnel.Duration(took[times/2]), P99: ginnel.Duration(took[times*99/100]),
			})
		}
		pick := func() ginnel.RouterID { return n.routers[rng.IntN(len(n.routers))].ID }
		snapshot := path.New(ginnel.MinRouterCost, n.routers, n.links)
		cached, ingress := path.NewTrees(snapshot), pick()
		cached.From(ingress, path.Exclusions{})
		candidates := make([]engine.Candidate, 4)
		for i := range candidates {
			candidates[i].ID = ginnel.TerminatorID(fmt.Sprintf("t%d", i))
			candidates[i].Precedence = ginnel.DefaultPrecedence
		}
		figure("dial decision, tree cached", decisionTarget, decisions, func() {
			for i := range candidates {
				candidates[i].Router = pick()
			}
			_, _ = circuit.Choose(cached, ingress, candidates, engine.Query{}, circuit.Exclusions{}, rng)
		})
		figure("tree of one ingress", treeTarget, trees, func() { snapshot.Tree(pick(), path.Exclusions{}) })
		figure("tree without one link and one router", treeTarget, trees, func() {
			snapshot.Tree(ingress, path.Exclusions{
				Links: []ginnel.LinkID{n.links[rng.IntN(len(n.links))].ID}, Routers: []ginnel.RouterID{pick()},
			})
		})
		figure("snapshot", 0, trees, func() { path.New(ginnel.MinRouterCost, n.routers, n.links) })
	}
	return all
}
