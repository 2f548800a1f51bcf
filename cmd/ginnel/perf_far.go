// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/perf"
)

// newPerfShaperCmd gives a far link in user space; bench starts it.
func newPerfShaperCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "shaper --next HOST:PORT",
		Short:  "A far link in user space: bytes take their time",
		Hidden: true,
	}
	flags := cmd.Flags()
	listen := flags.String("listen", "127.0.0.1:0", "HOST:PORT")
	next := flags.String("next", "", "HOST:PORT")
	delay := flags.Duration("delay", 0, "in each direction")
	rate := flags.Int("rate", perf.FarRate, "bytes a second in each direction of each connection")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *rate < 1 || *delay < 0 {
			return usagef("--rate %d --delay %s: want a rate above 0 and no negative delay", *rate, *delay)
		}
		return servePerf(cmd.Context(), cmd, *listen, perf.Shaper{Next: *next, Delay: *delay, Rate: *rate}.Serve)
	}
	return cmd
}
