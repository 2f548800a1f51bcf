// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/explain"
)

const pathExplainHelp = `Runs the path engine and the terminators' costing on a topology out of a file,
without a network: which path does a circuit take, which terminator does it get,
and what does each part of it cost?

  ginnel path explain --topology net.yaml --from r1 --to r2
  ginnel path explain --topology net.yaml --from r1 --service web
  ginnel path explain --topology net.yaml --from r1 --service web --count 10000

The file, YAML or JSON; costs are in units, 1 unit stands for 1 ms of round trip:

  minRouterCost: 10
  routers:
    - {id: r1, cost: 0, noTraversal: false, connected: true}
    - {id: r2}
  links:                     # latency: round-trip time; absent: unmeasured
    - {id: l1, a: r1, b: r2, staticCost: 1, latency: 43ms, down: false}
  services:
    - name: web
      strategy: smartrouting # weighted, random, sticky
      terminators:
        - {id: t1, router: r2, cost: 0, precedence: default, circuits: 0, failureCost: 0}`

func newPathCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "path", Short: "Ask for paths through a network, and measure their choice"}
	cmd.AddCommand(newPathExplainCmd(), newPathBenchCmd())
	return cmd
}

// pathFlags are the flags of path explain.
type pathFlags struct {
	topology, from, to, service string
	count                       int
	seed                        uint64
}

func newPathExplainCmd() *cobra.Command {
	var f pathFlags
	cmd := &cobra.Command{
		Use:   "explain --topology FILE --from ROUTER (--to ROUTER | --service NAME)",
		Short: "Explain the path, and the terminator, that a circuit gets in a topology",
		Long:  pathExplainHelp,
		RunE:  func(cmd *cobra.Command, _ []string) error { return explainPath(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.topology, "topology", "", "`FILE` with routers, links and services; - is standard input")
	flags.StringVar(&f.from, "from", "", "ingress `ROUTER`")
	flags.StringVar(&f.to, "to", "", "egress `ROUTER`")
	flags.StringVar(&f.service, "service", "", "`NAME` of the service whose terminator is to be chosen")
	flags.IntVar(&f.count, "count", 0, "repeat the choice so often and count the picks")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the strategies that draw (default: another each time)")
	need(cmd, "topology", "from")
	cmd.MarkFlagsMutuallyExclusive("to", "service")
	cmd.MarkFlagsOneRequired("to", "service")
	return cmd
}

func explainPath(cmd *cobra.Command, f pathFlags) error {
	counting := cmd.Flags().Changed("count")
	switch {
	case counting && f.service == "":
		return usagef("--count needs --service")
	case counting && f.count < 1:
		return usagef("--count %d: want 1 or more", f.count)
	}
	topology, err := readTopology(cmd.InOrStdin(), f.topology)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("seed") {
		f.seed = rand.Uint64()
	}
	rng := rand.New(rand.NewPCG(f.seed, 0))
	from := ginnel.RouterID(f.from)
	if counting {
		picks, err := topology.Picks(from, f.service, f.count, rng)
		if err != nil {
			return err
		}
		return printPicks(cmd, picks, f.count)
	}
	var answer explain.Answer
	if f.service != "" {
		answer, err = topology.Service(from, f.service, rng)
	} else {
		answer, err = topology.Path(from, ginnel.RouterID(f.to))
	}
	if err != nil {
		return err
	}
	return printAnswer(cmd, answer)
}

func readTopology(stdin io.Reader, name string) (*explain.Topology, error) {
	var data []byte
	var err error
	if name == "-" {
		name = "standard input"
		data, err = io.ReadAll(stdin)
	} else {
		data, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	return explain.Parse(name, data)
}

func printPicks(cmd *cobra.Command, picks map[ginnel.TerminatorID]int, count int) error {
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"picks": picks})
	}
	var rows [][]string
	for _, id := range slices.Sorted(maps.Keys(picks)) {
		rows = append(rows, []string{string(id), strconv.Itoa(picks[id]), fmt.Sprintf("%.1f%%", 100*float64(picks[id])/float64(count))})
	}
	return printTable(cmd.OutOrStdout(), []string{"TERMINATOR", "PICKS", "SHARE"}, rows)
}

func printAnswer(cmd *cobra.Command, a explain.Answer) error {
	if wantJSON(cmd) {
		return printJSON(cmd, a)
	}
	out := cmd.OutOrStdout()
	routers := make([]string, len(a.Path))
	for i, id := range a.Path {
		routers[i] = visible(string(id))
	}
	if err := writeText(out, strings.Join(routers, " > ")+" costs "+a.Cost.String()+"\n"); err != nil {
		return err
	}
	if err := printHops(out, a.Hops); err != nil || a.Terminator == "" {
		return err
	}
	return printCandidates(out, a)
}

func printHops(out io.Writer, hops []explain.Hop) error {
	if len(hops) == 0 {
		return nil
	}
	var rows [][]string
	for _, h := range hops {
		rows = append(rows, []string{string(h.Link), string(h.Router), h.LinkCost.String(), h.RouterCost.String()})
	}
	return printSection(out, []string{"LINK", "ROUTER", "LINK COST", "ROUTER COST"}, rows)
}

func printCandidates(out io.Writer, a explain.Answer) error {
	var rows [][]string
	for _, c := range a.Candidates {
		chosen := ""
		if c.Terminator == a.Terminator {
			chosen = "chosen"
		}
		rows = append(rows, []string{
			string(c.Terminator), c.Precedence.String(), c.Static.String(), c.Dynamic.String(),
			c.Path.String(), c.Total.String(), chosen,
		})
	}
	return printSection(out, []string{"TERMINATOR", "PRECEDENCE", "STATIC", "DYNAMIC", "PATH", "TOTAL", "CHOICE"}, rows)
}

// printSection writes a table after an empty line.
func printSection(out io.Writer, titles []string, rows [][]string) error {
	if err := writeText(out, "\n"); err != nil {
		return err
	}
	return printTable(out, titles, rows)
}
