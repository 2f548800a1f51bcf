// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ginnel/ginnel/internal/perf"
)

// Bench measures a network of processes beside peers, and by itself.
type Bench struct {
	Plan perf.Plan
	// Peers are those of Peers that it is measured beside.
	Peers []string
	// Circuits is how many idle ones are opened to see what they need, at most
	// MostCircuits.
	Circuits int
}

// Check says why a bench cannot be run.
func (b Bench) Check() error {
	for _, name := range b.Peers {
		if !slices.Contains(Peers(), name) {
			return fmt.Errorf("peer %q: want some of %s", name, strings.Join(Peers(), ", "))
		}
	}
	if b.Circuits < 1 || b.Circuits > MostCircuits {
		return fmt.Errorf("%d idle circuits: want 1 to %d", b.Circuits, MostCircuits)
	}
	return b.Plan.Check()
}

// Run measures the sections of the plan. What cannot be measured here is named on the
// program's Stderr and left out.
func (b Bench) Run(ctx context.Context, p Program) (found perf.Comparison, err error) {
	has := func(sections ...string) bool {
		return slices.ContainsFunc(b.Plan.Sections, func(s string) bool { return slices.Contains(sections, s) })
	}
	found = perf.Comparison{Sides: []string{product}, Figures: []perf.Figure{}, Failures: []perf.Failure{}}
	if has(perf.Data, perf.Dialing, perf.Far) {
		found, err = b.compare(ctx, p)
	}
	if err == nil && has(perf.Alone, perf.Faults) {
		b.Plan.Tell(b.Plan.Rounds, product, "alone")
		err = b.alone(ctx, p, &found)
	}
	return found, err
}

// compare makes server, network and peers of processes and compares.
func (b Bench) compare(ctx context.Context, p Program) (found perf.Comparison, err error) {
	err = p.with(ctx, func(f *fleet, dir, server string) error {
		ways := []way{shortWay(), longerWay()}
		if f.far = slices.Contains(b.Plan.Sections, perf.Far); f.far {
			ways = append(ways, farWay())
		}
		n, client, err := f.network(dir, server, ways...)
		if err != nil {
			return err
		}
		defer client.Close()
		defer n.client.Close()
		sides := []perf.Side{n.side(client)}
		for _, peer := range peers() {
			if !slices.Contains(b.Peers, peer.name) {
				continue
			}
			s, err := peer.begin(f, filepath.Join(dir, peer.name), server)
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				f.skip(peer.name, err)
				continue
			}
			s.Name = peer.name
			sides = append(sides, s)
		}
		found, err = perf.Compare(ctx, sides, b.Plan)
		return err
	})
	return found, err
}
