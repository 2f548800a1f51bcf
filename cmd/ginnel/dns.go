// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/bench"
)

const dnsBenchHelp = `Measures the tunneler's resolver on this machine, over loopback UDP, beside a
bare server that sends every packet back as it is, in turns:

  names      questions for the addresses of services
  wildcard   for names below a wildcard that were not asked for before, each of
             which is on disk when it is answered
  nothing    for names in our zone that do not exist`

func newDNSCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "dns", Short: "The resolver of the tunneler"}
	cmd.AddCommand(newDNSBenchCmd())
	return cmd
}

func newDNSBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many questions a second the resolver answers",
		Long:  dnsBenchHelp,
	}
	flags := cmd.Flags()
	duration := flags.Duration("duration", 2*time.Second, "how long each measurement takes")
	services := flags.Int("services", 10_000, "services with a name each")
	inFlight := flags.Int("in-flight", 32, "questions at a time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *duration <= 0 || *services < 1 || *inFlight < 1 {
			return usagef("--duration, --services and --in-flight must be more than 0")
		}
		live := liveOf(cmd)
		live.say(fmt.Sprintf("a resolver with %d names", *services))
		found, err := bench.MeasureResolver(cmd.Context(), *services, *inFlight, *duration)
		live.clear()
		if err != nil {
			return err
		}
		return printFound(cmd, found, dnsBenchText(found))
	}
	return cmd
}

// dnsBenchText gives what was measured for people.
func dnsBenchText(b bench.Resolver) string {
	var text strings.Builder
	for _, q := range b.Questions {
		fmt.Fprintf(&text, "%-9s %7.0f questions a second, %d in flight: p50 %.3f ms, p99 %.3f ms", q.Kind, q.PerSecond, b.InFlight, q.Latency.P50, q.Latency.P99)
		if q.Ratio > 0 {
			fmt.Fprintf(&text, "; %.2f of the bare server", q.Ratio)
		}
		text.WriteByte('\n')
	}
	return text.String()
}
