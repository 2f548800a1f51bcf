// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

const circuitExplainHelp = `Tells how a circuit came about: which terminators the controller had to choose
from and what each cost, the path, and how its routers answered. A controller
remembers its last 4096 set-ups, those that failed, too: the error of a dial
names the circuit. Each resume of a circuit is a set-up of its own, and its end
is the last that is told.`

func newCircuitExplainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID", Short: "Tell how a circuit came about, or why it did not", Long: circuitExplainHelp,
		Example: "  ginnel circuit explain ID",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			all, err := c.ExplainCircuit(ctx, args[0])
			if err != nil {
				return err
			}
			for _, e := range all {
				if wantJSON(cmd) {
					err = printJSON(cmd, e)
				} else {
					err = writeText(cmd.OutOrStdout(), explanationText(e))
				}
				if err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// explanationText gives a set-up for people, its steps as a dial numbers them.
func explanationText(e api.Explanation) string {
	if e.Event == api.EventEnded {
		var b explainer
		b.line(9, "ended", "circuit %s: %s after %s, %d bytes sent, %d received", e.Circuit, e.Code, round(time.Duration(e.Took)), e.BytesSent, e.BytesReceived)
		return b.String()
	}
	what := "dial request"
	if e.Resume > 0 {
		what = fmt.Sprintf("resume %d", e.Resume)
	}
	service := string(e.Service)
	if e.Protocol == ginnel.UDP { // a stream goes without saying
		service += " (udp)"
	}
	var b explainer
	b.line(5, what, "circuit %s: service %s for %s over %s, at %s", e.Circuit, service, e.Client, e.Ingress, e.At.Format(time.RFC3339))
	b.weighed(e.Weighed)
	end := "end to end with " + e.Peer
	if e.Cause != "" {
		end = e.Cause
	}
	b.line(9, "outcome", "%s after %s: %s", e.Code, round(time.Duration(e.Took)), end)
	return b.String()
}
