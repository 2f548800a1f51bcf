// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newTerminatorCmd() *cobra.Command {
	cmd := asks(&cobra.Command{Use: "terminator", Short: "Terminators: create, list with their costs"})
	n := noun[ginnel.Terminator, api.Terminator]{
		name: "terminator",
		of:   (*api.Client).Terminators,
		columns: []column[api.Terminator]{
			{"TERMINATOR", func(t api.Terminator) string { return string(t.ID) }},
			{"SERVICE", func(t api.Terminator) string { return string(t.Service) }},
			{"ROUTER", func(t api.Terminator) string { return string(t.Router) }},
			{"HOSTED BY", func(t api.Terminator) string { return hostedBy(t) }},
			{"ONLINE", func(t api.Terminator) string { return yes(t.Online) }},
			{"HEALTH", func(t api.Terminator) string { return health(t) }},
			{"PRECEDENCE", func(t api.Terminator) string { return t.Precedence.String() }},
			{"STATIC", func(t api.Terminator) string { return t.StaticCost.String() }},
			{"DYNAMIC", func(t api.Terminator) string { return t.Dynamic.String() }},
			{"CIRCUITS", func(t api.Terminator) string { return strconv.Itoa(t.Circuits) }},
		},
	}
	cmd.AddCommand(n.verbs()...)
	cmd.AddCommand(newTerminatorCreateCmd())
	return cmd
}

func hostedBy(t api.Terminator) string {
	if t.Host != "" {
		return string(t.Host)
	}
	return string(t.Address)
}

func health(t api.Terminator) string {
	switch {
	case t.Unhealthy:
		return "failed"
	case t.Check == nil:
		return "-"
	}
	return "ok"
}

// checkFlags adds the flags of a health check; the function gives the check, or
// nil where there is none.
func checkFlags(cmd *cobra.Command) func() (*ginnel.Check, error) {
	flags := cmd.Flags()
	kind := flags.String("check", "", "health check by the router: tcp (connects) or http (GET, status below 400)")
	path := flags.String("check-path", "", "what an http check gets (default /)")
	interval := flags.Duration("check-interval", 0, "between two checks (default 10s)")
	timeout := flags.Duration("check-timeout", 0, "of one check (default 2s)")
	return func() (*ginnel.Check, error) {
		if *kind == "" {
			for _, name := range []string{"check-path", "check-interval", "check-timeout"} {
				if flags.Changed(name) {
					return nil, usagef("--%s: give --check too", name)
				}
			}
			return nil, nil
		}
		check := ginnel.Check{
			Kind: ginnel.CheckKind(*kind), Path: *path, Interval: ginnel.Duration(*interval), Timeout: ginnel.Duration(*timeout),
		}.WithDefaults()
		if err := check.Validate(); err != nil {
			return nil, usageError{err}
		}
		return &check, nil
	}
}

func newTerminatorCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create SERVICE",
		Short:   "Let a router connect a service's circuits to an address",
		Example: "  ginnel terminator create web --router r2 --address tcp:127.0.0.1:8080",
		Args:    cobra.ExactArgs(1),
	}
	router := cmd.Flags().String("router", "", "the egress router")
	address := cmd.Flags().String("address", "", "tcp:HOST:PORT or udp:HOST:PORT that it connects to")
	precedence := cmd.Flags().String("precedence", "default", "required, default or failed")
	instance := cmd.Flags().String("instance", "", "which one this is, for dials that ask for one")
	units := costFlag(cmd, 0, "static cost")
	checkOf := checkFlags(cmd)
	for _, needed := range []string{"router", "address"} {
		if err := cmd.MarkFlagRequired(needed); err != nil {
			panic("BUG: " + err.Error())
		}
	}
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		class, err := ginnel.ParsePrecedence(*precedence)
		if err != nil {
			return usageError{err}
		}
		price, err := cost(*units)
		if err != nil {
			return err
		}
		check, err := checkOf()
		if err != nil {
			return err
		}
		made, err := c.Terminators().Create(ctx, ginnel.Terminator{
			Service: ginnel.ServiceID(args[0]), Router: ginnel.RouterID(*router), Address: ginnel.Address(*address),
			Instance: *instance, StaticCost: price, Precedence: class, Check: check,
		})
		if err != nil {
			return err
		}
		return said(cmd, made, "terminator "+made.ID+" created")
	})
	return cmd
}
