// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// nameFlag is a flag that holds the name of a thing. It is not a string to the
// flags: --identity of that type names a file.
type nameFlag string

// String gives the name.
func (n *nameFlag) String() string { return string(*n) }

// Set takes any name; whether there is such a thing is the controller's to know.
func (n *nameFlag) Set(text string) error { *n = nameFlag(text); return nil }

// Type gives what help shows for the value.
func (n *nameFlag) Type() string { return "name" }

func newPolicyWhyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "why --identity NAME --service NAME",
		Short:   "Say what allows an identity a service, or what is missing",
		Example: "  ginnel policy why --identity alice --service web",
	}
	var identity, service nameFlag
	cmd.Flags().Var(&identity, "identity", "who")
	cmd.Flags().Var(&service, "service", "which service")
	need(cmd, "identity", "service")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
		w, err := c.Why(ctx, ginnel.IdentityID(identity), ginnel.ServiceID(service))
		if err != nil {
			return err
		}
		if wantJSON(cmd) {
			return printJSON(cmd, w)
		}
		return printList(cmd, whyRows(w), whyColumns)
	})
	return cmd
}

// whyRow is one question and its answer.
type whyRow struct {
	question string
	api.Reason
}

func whyRows(w api.Why) []whyRow {
	dial := "dial"
	if slices.Contains(w.Protocols, ginnel.UDP) { // what a dial is of by itself goes without saying
		dial += " (" + list(w.Protocols) + ")"
	}
	rows := []whyRow{{dial, w.Dial}, {"bind", w.Bind}}
	for _, e := range w.EdgeRouters {
		rows = append(rows, whyRow{"edge router " + string(e.Router), e.Reason})
	}
	return rows
}

var whyColumns = []column[whyRow]{
	{"TO", func(r whyRow) string { return r.question }},
	{"ALLOWED", func(r whyRow) string { return yes(r.Allowed) }},
	{"BY", func(r whyRow) string { return list(r.By) }},
	{"MISSING", func(r whyRow) string { return r.Missing }},
	{"NEARLY", func(r whyRow) string {
		near := make([]string, len(r.Near))
		for i, n := range r.Near {
			near[i] = string(n.Policy) + ": not its " + n.List
		}
		return strings.Join(near, ", ")
	}},
}
