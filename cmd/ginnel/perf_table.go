// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/perf"
)

// benchTitle names a figure for people.
func benchTitle(name string, plan perf.Plan) string {
	many, inFlight := fmt.Sprintf("%d streams", plan.Streams), fmt.Sprintf(", %d in flight", plan.InFlight)
	const full, direct = ", full handshakes", ", without a proxy"
	titles := map[string]string{
		perf.OneUp: "1 stream up", perf.OneDown: "1 stream down", perf.ManyUp: many + " up", perf.ManyDown: many + " down",
		perf.CPUOne: "CPU time, 1 stream up", perf.CPUMany: "CPU time, " + many + " up",
		perf.LeastUp: "slowest of " + many + " up", perf.LeastDown: "slowest of " + many + " down",
		perf.MemoryMany: "memory, " + many + " up",
		perf.TwoUp:      "2 streams up", perf.TwoDown: "2 streams down", perf.FourUp: "4 streams up", perf.FourDown: "4 streams down",
		perf.LeastTwoUp: "slowest of 2 streams up", perf.LeastTwoDown: "slowest of 2 streams down",
		perf.LeastFourUp: "slowest of 4 streams up", perf.LeastFourDown: "slowest of 4 streams down",
		perf.Hop:     "one router more adds, each way",
		perf.TripP50: "one-byte round trip p50", perf.TripP99: "one-byte round trip p99",
		perf.LoadedP50: "round trip beside a stream p50", perf.LoadedP99: "round trip beside a stream p99",
		perf.ConnectP50: "connect + first byte p50", perf.ConnectP99: "connect + first byte p99",
		perf.ConnectP50Full: "connect + first byte p50" + full, perf.ConnectP99Full: "connect + first byte p99" + full,
		perf.DirectP50: "connect + first byte p50" + direct, perf.DirectP99: "connect + first byte p99" + direct,
		perf.PerSecond: "connections" + inFlight, perf.PerSecondFull: "connections" + inFlight + full,
		perf.CPUConnect: "CPU time of each", perf.CPUConnectFull: "CPU time of each" + full,
		perf.FarUp: fmt.Sprintf("1 stream up, %s", perf.FarTrip), perf.FarDown: fmt.Sprintf("1 stream down, %s", perf.FarTrip),
		perf.MemoryRouter: "memory of a router, idle", perf.MemoryController: "memory of the controller, idle",
		perf.MemoryClient: "memory of an idle circuit, where its client is",
		perf.MemoryRow:    "memory of an idle circuit, where it passes", perf.MemoryEnd: "memory of an idle circuit, where it ends",
		perf.AfterSilentLink: "a router was halted, until no path leads over it", perf.AfterSilentCtrl: "the same, until it counts as gone",
		perf.AfterKill: "a router was killed, until both", perf.DemoStart: "demo, until its first byte by name",
		perf.Resumed: "handshakes resumed", perf.ResumedFull: "handshakes resumed" + full,
	}
	return titles[name]
}

// printBench writes a table for each section, the targets, and what failed, if
// anything did.
func printBench(cmd *cobra.Command, found perf.Comparison, plan perf.Plan) error {
	if wantJSON(cmd) {
		return printJSON(cmd, struct {
			perf.Comparison
			Targets []perf.Target `json:"targets"`
		}{found, perf.Targets(found)})
	}
	for _, section := range plan.Sections {
		figures := slices.DeleteFunc(slices.Clone(found.Figures), func(f perf.Figure) bool { return f.Section != section })
		columns := []column[perf.Figure]{
			{strings.ToUpper(section), func(f perf.Figure) string { return benchTitle(f.Name, plan) }},
			{"UNIT", func(f perf.Figure) string { return f.Unit }},
		}
		for _, side := range found.Sides {
			measured := slices.ContainsFunc(figures, func(f perf.Figure) bool { _, is := f.Values[side]; return is })
			if measured {
				columns = append(columns, column[perf.Figure]{strings.ToUpper(side), func(f perf.Figure) string { return benchCell(f, side) }})
			}
		}
		if err := printList(cmd, figures, columns); err != nil {
			return err
		}
		if err := writeText(cmd.OutOrStdout(), "\n"); err != nil {
			return err
		}
	}
	if err := printTargets(cmd, perf.Targets(found)); err != nil {
		return err
	}
	for _, f := range found.Failures {
		line := fmt.Sprintf("%s: %s: %d connections failed, the first: %s\n", f.Side, f.Measure, f.Count, f.First)
		if err := writeText(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}

// benchCell gives what a figure is on a side, and in brackets how the first side's
// compares.
func benchCell(f perf.Figure, side string) string {
	v, measured := f.Values[side]
	if !measured {
		return ""
	}
	cell := perf.Number(v)
	if ratio, compared := f.Ratios[side]; compared {
		cell += fmt.Sprintf(" (%.2f)", ratio)
	}
	return cell
}

// printTargets says what was wanted, and of what.
func printTargets(cmd *cobra.Command, targets []perf.Target) error {
	if len(targets) == 0 {
		return nil
	}
	unit := func(t perf.Target, v float64) string { return strings.TrimSpace(perf.Number(v) + " " + t.Unit) }
	err := printList(cmd, targets, []column[perf.Target]{
		{"TARGET", func(t perf.Target) string { return t.Name }},
		{"WANT", func(t perf.Target) string {
			if t.Least {
				return "at least " + unit(t, t.Want)
			}
			return "at most " + unit(t, t.Want)
		}},
		{"IS", func(t perf.Target) string { return unit(t, t.Is) }},
		{"MET", func(t perf.Target) string { return yes(t.Met) }},
	})
	if err != nil {
		return err
	}
	return writeText(cmd.OutOrStdout(), "\n")
}

// drawBench writes a chart to a file, if there is one to be written.
func drawBench(stderr io.Writer, chart string, found perf.Comparison, plan perf.Plan) error {
	if chart == "" {
		return nil
	}
	var panels []perf.Panel
	for _, p := range []struct{ figure, better string }{
		{perf.OneUp, "more"},
		{perf.OneDown, "more"},
		{perf.ManyUp, "more"},
		{perf.ManyDown, "more"},
		{perf.CPUOne, "less"},
		{perf.CPUMany, "less"},
		{perf.PerSecond, "more"},
		{perf.ConnectP50, "less"},
		{perf.CPUConnect, "less"},
		{perf.TripP50, "less"},
	} {
		f := found.Figure(p.figure)
		panel := perf.Panel{Title: benchTitle(p.figure, plan) + " (" + p.better + " is better)", Unit: f.Unit}
		for _, side := range found.Sides {
			if v, measured := f.Values[side]; measured {
				panel.Bars = append(panel.Bars, perf.Bar{Name: side, Value: v})
			}
		}
		if len(panel.Bars) > 0 {
			panels = append(panels, panel)
		}
	}
	if len(panels) == 0 {
		fmt.Fprintln(stderr, "skipped: the chart, which is of the sections data and dial")
		return nil
	}
	file, err := os.Create(chart)
	if err != nil {
		return fmt.Errorf("--chart: %w", err)
	}
	return errors.Join(perf.WriteChart(file, "ginnel perf bench", found.Sides[0], panels), file.Close())
}
