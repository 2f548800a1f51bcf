// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newLinkCmd() *cobra.Command {
	cmd := asks(&cobra.Command{Use: "link", Short: "Links between routers: create, change, list"})
	n := noun[ginnel.LinkSpec, api.Link]{
		name: "link",
		of:   (*api.Client).Links,
		columns: []column[api.Link]{
			{"LINK", func(l api.Link) string { return string(l.ID) }},
			{"UP", func(l api.Link) string { return yes(l.Up) }},
			{"RTT", func(l api.Link) string { return rtt(l) }},
			{"STATIC", func(l api.Link) string { return l.StaticCost.String() }},
			{"COST", func(l api.Link) string { return l.Cost.String() }},
		},
	}
	cmd.AddCommand(n.verbs()...)
	cmd.AddCommand(newLinkCreateCmd(), newLinkUpdateCmd())
	return cmd
}

func rtt(l api.Link) string {
	if !l.Measured {
		return ""
	}
	return l.RTT.Round(10 * time.Microsecond).String()
}

func newLinkCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create ROUTER ROUTER",
		Short: "Let two routers link",
		Args:  cobra.ExactArgs(2),
	}
	name := cmd.Flags().String("name", "", "tells parallel links apart (default "+ginnel.DefaultLinkName+")")
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
		Args:    cobra.ExactArgs(1),
	}
	units := costFlag(cmd, 1, "static cost")
	if err := cmd.MarkFlagRequired("cost"); err != nil {
		panic("BUG: " + err.Error())
	}
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
