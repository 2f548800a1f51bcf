// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newDialerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "dialer", Short: "How the controller dials its routers"}
	cmd.AddCommand(asks(newDialerListCmd(), newDialerInspectCmd(), newDialerValidateCmd(), newDialerRedialCmd(), newDialerWatchCmd())...)
	cmd.AddCommand(newDialerReplayCmd(), newDialerSimulateCmd(), newDialerBenchCmd())
	return cmd
}

var dialColumns = []column[api.Dial]{
	{"ROUTER", func(d api.Dial) string { return string(d.Router) }},
	{"STATE", func(d api.Dial) string { return d.State }},
	{"CONNECTED", func(d api.Dial) string { return yes(d.Connected) }},
	{"ADDRESS", func(d api.Dial) string { return d.Address }},
	{"ATTEMPTS", func(d api.Dial) string { return strconv.Itoa(d.Attempts) }},
	{"DELAY", func(d api.Dial) string { return d.Delay.Round(time.Millisecond).String() }},
	{"NEXT", func(d api.Dial) string { return in(d.Next) }},
	{"LAST ERROR", func(d api.Dial) string { return d.LastError }},
	{"AGO", func(d api.Dial) string { return ago(d.ErrorAt) }},
}

// in gives the time until t for a table.
func in(t *time.Time) string {
	if t == nil {
		return ""
	}
	return max(0, time.Until(*t)).Round(100*time.Millisecond).String() + " (" + t.Local().Format(time.TimeOnly) + ")"
}

const dialerListHelp = `Lists the routers that wait for a dial, are being dialed, or came up only just now.
One that has been connected for longer than fastFailureWindow is left alone, and
stands in "ginnel router list" alone.`

func newDialerListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the routers that are dialed or watched", Long: dialerListHelp,
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			all, err := c.ListDials(ctx)
			if err != nil {
				return err
			}
			return printList(cmd, all, dialColumns)
		}),
	}
}

func newDialerInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use: "inspect ROUTER", Short: "Show all about the dialing of one router", Example: "  ginnel dialer inspect r1",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			d, err := c.InspectDial(ctx, ginnel.RouterID(args[0]))
			if err != nil {
				return err
			}
			return printOne(cmd, d)
		}),
	}
}

func newDialerValidateCmd() *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "Compare store, channels and dial machine; exit 1 when they disagree",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			all, err := c.ValidateDials(ctx)
			if err != nil {
				return err
			}
			columns := []column[api.Dial]{
				dialColumns[0], dialColumns[1], dialColumns[2],
				{"PROBLEM", func(d api.Dial) string { return d.Problem }},
			}
			if err := printList(cmd, all, columns); err != nil {
				return err
			}
			bad := 0
			for _, d := range all {
				if d.Problem != "" {
					bad++
				}
			}
			if bad > 0 {
				return fmt.Errorf("%d of %d routers are not as they should be", bad, len(all))
			}
			return nil
		}),
	}
}

func newDialerRedialCmd() *cobra.Command {
	return &cobra.Command{
		Use: "redial ROUTER", Short: "Dial a waiting router now, with its backoff forgotten", Example: "  ginnel dialer redial r1",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			if err := c.Redial(ctx, ginnel.RouterID(args[0])); err != nil {
				return err
			}
			return said(cmd, api.Created{ID: args[0]}, "router "+args[0]+" is dialed now")
		}),
	}
}

func newDialerWatchCmd() *cobra.Command {
	return &cobra.Command{
		Use: "watch", Short: "Print every change of state as it happens",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			for ev, err := range c.WatchDials(ctx) {
				if err != nil {
					return err
				}
				if err := printDialEvent(cmd, ev); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

func printDialEvent(cmd *cobra.Command, ev api.DialEvent) error {
	if wantJSON(cmd) {
		return printJSON(cmd, ev)
	}
	text := fmt.Sprintf("%s %s %s -> %s (%s)", ev.At.Local().Format("15:04:05.000"), ev.Router, ev.From, ev.To, ev.Why)
	if ev.Next != nil {
		text += " next in " + in(ev.Next)
	}
	if ev.Address != "" {
		text += " at " + ev.Address
	}
	if ev.Error != "" {
		text += ": " + ev.Outcome + ": " + visible(ev.Error)
	}
	return writeText(cmd.OutOrStdout(), text+"\n")
}
