// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/bench"
)

const dialerBenchHelp = `Measures the dial loop of a controller on this machine, in real time, with dials
that fail at once, and the processor time of a controller that is idle with its
routers connected in memory, both ends in this process:

  how late dials start, behind the instant at which they are due
  what a controller costs that has nothing to do but heartbeats`

// dialerBench is what ginnel dialer bench prints.
type dialerBench struct {
	Starts []bench.Starts `json:"starts"`
	Idle   *bench.Idle    `json:"idle,omitempty"`
}

func newDialerBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how exactly dials start, and an idle controller",
		Long:  dialerBenchHelp,
	}
	flags := cmd.Flags()
	duration := flags.Duration("duration", 5*time.Second, "how long each measurement takes")
	many := flags.Int("routers", 1_000_000, "routers of the larger measurement")
	rate := flags.Int("rate", 10_000, "its dials a second")
	peers := flags.Int("peers", 10_000, "connected routers of the idle controller; 0: leave it out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *duration <= 0 || *many < 1 || *rate < 1 || *peers < 0 {
			return usagef("--duration, --routers and --rate must be more than 0, --peers not less")
		}
		live := liveOf(cmd)
		var found dialerBench
		for _, plan := range []struct{ routers, rate int }{{100, 100}, {*many, *rate}} {
			live.say(fmt.Sprintf("dials of %d routers, %d a second", plan.routers, plan.rate))
			found.Starts = append(found.Starts, bench.MeasureStarts(cmd.Context(), plan.routers, plan.rate, *duration))
		}
		if *peers > 0 {
			live.say(fmt.Sprintf("a controller with %d routers", *peers))
			idle, err := bench.MeasureIdle(cmd.Context(), *peers, *duration)
			if err != nil {
				live.clear()
				return err
			}
			found.Idle = &idle
		}
		live.clear()
		if err := context.Cause(cmd.Context()); err != nil {
			return err
		}
		return printFound(cmd, found, found.text())
	}
	return cmd
}

// text gives what was measured for people.
func (b dialerBench) text() string {
	var text strings.Builder
	for _, s := range b.Starts {
		fmt.Fprintf(&text, "%9d routers tracked: %7.0f dials a second start late by p50 %v, p99 %v, max %v; %.2f processors, %d MiB\n",
			s.Routers, s.PerSecond, s.P50.Round(time.Microsecond), s.P99.Round(time.Microsecond), s.Max.Round(time.Microsecond), s.CPU, s.Heap>>20)
	}
	if i := b.Idle; i != nil {
		fmt.Fprintf(&text, "%9d routers connected, idle: %.3f processors with both ends, %d MiB\n", i.Peers, i.CPU, i.Heap>>20)
	}
	return text.String()
}
