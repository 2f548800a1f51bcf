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

func newLinkCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "link", Short: "Links between routers: create, change, list"}
	n := noun[ginnel.LinkSpec, api.Link]{
		name: "link", example: "r1/r2/0",
		of: (*api.Client).Links,
		columns: []column[api.Link]{
			{"LINK", func(l api.Link) string { return string(l.ID) }},
			{"UP", func(l api.Link) string { return yes(l.Up) }},
			{"RTT", func(l api.Link) string { return rtt(l) }},
			{"A TO B", func(l api.Link) string { return loadOf(l, func(o api.LinkLoad) string { return bitRate(o.AToB) }) }},
			{"B TO A", func(l api.Link) string { return loadOf(l, func(o api.LinkLoad) string { return bitRate(o.BToA) }) }},
			{"BUSY", func(l api.Link) string {
				return loadOf(l, func(o api.LinkLoad) string { return fmt.Sprintf("%.0f%%", 100*o.Busy) })
			}},
			{"STATIC", func(l api.Link) string { return l.StaticCost.String() }},
			{"COST", func(l api.Link) string { return l.Cost.String() }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newLinkCreateCmd(), newLinkUpdateCmd())...)
	return cmd
}

func rtt(l api.Link) string {
	if !l.Measured {
		return ""
	}
	return l.RTT.Round(10 * time.Microsecond).String()
}

// loadOf gives a cell about what a link carries.
func loadOf(l api.Link, cell func(api.LinkLoad) string) string {
	if l.Load == nil {
		return ""
	}
	return cell(*l.Load)
}

// bitRate writes bytes a second as bits, as links are sold; none: empty.
func bitRate(bytes uint64) string {
	bits := 8 * float64(bytes)
	switch {
	case bits == 0:
		return ""
	case bits >= 1e9:
		return fmt.Sprintf("%.2f Gbit/s", bits/1e9)
	case bits >= 1e6:
		return fmt.Sprintf("%.1f Mbit/s", bits/1e6)
	}
	return fmt.Sprintf("%.1f kbit/s", bits/1e3)
}

func newLinkCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create ROUTER ROUTER",
		Short:   "Let two routers link",
		Example: "  ginnel link create r1 r2",
	}
	name := cmd.Flags().String("name", "", "`NAME` that tells parallel links apart (default "+ginnel.DefaultLinkName+")")
	units := costFlag(cmd, 1, "static cost")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		price, err := cost(*units)
		if err != nil {
			return err
		}
		made, err := c.Links().Create(ctx, ginnel.LinkSpec{
			A: ginnel.RouterID(args[0]), B: ginnel.RouterID(args[1]), Name: *name, StaticCost: price,
		})
		if err != nil {
			return err
		}
		return said(cmd, made, "link "+made.ID+" created")
	})
	return cmd
}

func newLinkUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "update ID",
		Short:   "Change what a link costs",
		Example: "  ginnel link update r1/r2/0 --cost 20",
	}
	units := costFlag(cmd, 0, "static cost")
	need(cmd, "cost")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		price, err := cost(*units)
		if err != nil {
			return err
		}
		a, b, name, ok := ginnel.LinkID(args[0]).Split()
		if !ok {
			return usagef("link %q: want ROUTER/ROUTER/NAME, as ginnel link list shows it", args[0])
		}
		if err := c.Links().Update(ctx, args[0], ginnel.LinkSpec{A: a, B: b, Name: name, StaticCost: price}); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "link "+args[0]+" updated")
	})
	return cmd
}
