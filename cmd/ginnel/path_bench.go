// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/explain"
)

const pathBenchHelp = `Measures the path engine on two made-up networks: 1,000 routers with 10,000 links
at random, and 3,000 routers in a hierarchy of core, regions and edge. It needs no
network and takes a few seconds. Whoever wants to compare runs it on a quiet machine.

  ginnel path bench
  ginnel path bench --json --seed 7`

func newPathBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how long path choice takes",
		Long:  pathBenchHelp,
	}
	seed := cmd.Flags().Uint64("seed", 1, "seed of the networks")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		rng := rand.New(rand.NewPCG(*seed, 0))
		networks := []explain.Network{explain.Flat(1000, 10000, rng), explain.Hierarchy(3000, rng)}
		return printList(cmd, explain.Bench(networks, 20000, 200, rng), []column[explain.Figure]{
			{"NETWORK", func(f explain.Figure) string { return f.Network }},
			{"ROUTERS", func(f explain.Figure) string { return strconv.Itoa(f.Routers) }},
			{"LINKS", func(f explain.Figure) string { return strconv.Itoa(f.Links) }},
			{"WHAT", func(f explain.Figure) string { return f.What }},
			{"P50", func(f explain.Figure) string { return f.P50.String() }},
			{"P99", func(f explain.Figure) string { return f.P99.String() }},
			{"TARGET", func(f explain.Figure) string { return target(f) }},
		})
	}
	return cmd
}

// target says what a figure should stay below, and whether it does.
func target(f explain.Figure) string {
	switch {
	case f.Target == 0:
		return "-"
	case f.P50 < f.Target:
		return "< " + f.Target.String() + " met"
	}
	return "< " + f.Target.String() + " missed"
}
