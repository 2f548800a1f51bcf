// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/fleet"
	"github.com/ginnel/ginnel/internal/perf"
)

const perfBenchHelp = `Measure a network beside others, in turns, round by round:

  ginnel   program - tunneler's proxy - edge router - link - egress router - server
  relay    program - relay - relay - relay - server: the yardstick, three plain processes,
           TLS between them with certificates of the same kind, 64 KiB buffers
  tcp      program - server
  ssh      program - ssh -L - sshd - server
  stunnel  program - stunnel - stunnel - server; stunnel2 has one more, for a second hop
  haproxy  program - haproxy - haproxy - server, TLS between them

The last three run where their programs are installed, with keys made for the run.

In section "data" all connections resume the TLS session of an earlier one. Section
"dial" measures new connections that do, and with a second tunneler such that do not;
the relays shake hands in full on both hops for each connection. "without a proxy" is
a dial of this program's own by the SDK. Section "far" is one stream over a link of 50 ms
and 200 Mbit/s, which a process of its own plays: between two routers of the network,
and, for tcp, between program and server with nothing else. Section "alone" is of the network
by itself: memory of idle processes and of each of --circuits idle circuits, and how soon
"ginnel demo" has its first byte; section "faults", how soon a router that was halted or
killed is not dialed over any more. Then follow the targets, and which of them are met.

All run on this machine, in processes of their own, as they come. Shown are the medians of the
rounds, and in brackets the median of the rounds' ratios, ginnel's to the peer's: above 1
is more than the peer's, which is good for throughput and bad for times. CPU time and memory are
those of all processes between program and server, the controller included.`

// newPerfBenchCmd gives ginnel perf bench, which make bench calls.
func newPerfBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a network on this machine beside a two-hop TLS relay and others",
		Long:  perfBenchHelp,
	}
	var b fleet.Bench
	flags := cmd.Flags()
	flags.StringSliceVar(&b.Plan.Sections, "sections", perf.Sections(), "`SECTIONS` that are measured")
	flags.StringSliceVar(&b.Peers, "peers", fleet.Peers(), "`PEERS` that the network is measured beside")
	flags.IntVar(&b.Plan.Rounds, "rounds", 3, "how often everything is measured")
	flags.DurationVar(&b.Plan.Duration, "duration", time.Second, "how long each measurement takes")
	flags.IntVar(&b.Plan.Streams, "streams", 8, "connections of the measurements with many")
	flags.IntVar(&b.Plan.Connects, "connects", 200, "connections of the measurement of connect latency")
	flags.IntVar(&b.Plan.InFlight, "in-flight", 32, "connections at the same time of the measurement of connection rate")
	flags.IntVar(&b.Circuits, "circuits", fleet.MostCircuits, "idle circuits whose memory is measured")
	chart := flags.String("chart", "", "write a chart to this `FILE` (SVG)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.Check(); err != nil {
			return usageError{err}
		}
		live := liveOf(cmd)
		b.Plan.Tell = func(round int, side, what string) {
			live.say(fmt.Sprintf("round %d of %d: %s: %s", round, b.Plan.Rounds, side, what))
		}
		program, err := thisProgram(cmd)
		if err != nil {
			return err
		}
		found, err := b.Run(cmd.Context(), program)
		live.clear()
		if err != nil {
			return err
		}
		return errors.Join(printBench(cmd, found, b.Plan), drawBench(cmd.ErrOrStderr(), *chart, found, b.Plan))
	}
	return cmd
}

// thisProgram gives the program that runs, for the processes of a measurement.
func thisProgram(cmd *cobra.Command) (fleet.Program, error) {
	path, err := os.Executable()
	return fleet.Program{Path: path, Settled: settledTime, Stderr: cmd.ErrOrStderr()}, err
}
