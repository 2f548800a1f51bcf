// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/api"
)

const circuitWatchHelp = `Prints one line for each dial, resume and circuit that ends: who, which service,
which peer, why, how long it took and, for a circuit, the bytes each way. Dials
that fail are among them, with every attempt that was made. It goes on until it is
interrupted; with --json each line is an object.

  ginnel circuit watch
  ginnel circuit watch --json >> circuits.jsonl`

func newCircuitWatchCmd() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Print dials, resumes and circuits as they end", Long: circuitWatchHelp,
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			for ev, err := range c.WatchCircuits(ctx) {
				if err != nil {
					return err
				}
				if wantJSON(cmd) {
					err = printJSON(cmd, ev)
				} else {
					err = writeText(cmd.OutOrStdout(), circuitEventText(ev))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// circuitEventText gives an event for people: a line, and one for each attempt
// that failed.
func circuitEventText(ev api.CircuitEvent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-6s %s %s for %s", ev.At.Local().Format("15:04:05.000"), ev.Event, orDash(string(ev.Circuit)),
		orDash(string(ev.Service)), orDash(string(ev.Client)))
	if ev.Peer != "" {
		b.WriteString(" with " + ev.Peer)
	}
	fmt.Fprintf(&b, ": %s after %s", ev.Code, round(time.Duration(ev.Duration)))
	if ev.Event == api.EventEnded {
		fmt.Fprintf(&b, ", %d bytes sent, %d received", ev.BytesSent, ev.BytesReceived)
	}
	if ev.Cause != "" {
		b.WriteString(": " + visible(ev.Cause))
	}
	b.WriteByte('\n')
	b.WriteString(attemptsText(ev.Attempts))
	return b.String()
}
