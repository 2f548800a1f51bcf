// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newTerminatorCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "terminator", Short: "Terminators: create, change, list with each term of their costs"}
	n := noun[ginnel.Terminator, api.Terminator]{
		name: "terminator", example: "web@r2",
		of: (*api.Client).Terminators,
		columns: []column[api.Terminator]{
			{"TERMINATOR", func(t api.Terminator) string { return string(t.ID) }},
			{"SERVICE", func(t api.Terminator) string { return string(t.Service) }},
			{"ROUTER", func(t api.Terminator) string { return string(t.Router) }},
			{"HOSTED BY", func(t api.Terminator) string { return hostedBy(t) }},
			{"ONLINE", func(t api.Terminator) string { return yes(t.Online) }},
			{"CHECK", func(t api.Terminator) string { return checkState(t) }},
			{"PRECEDENCE", func(t api.Terminator) string { return precedenceNow(t) }},
			{"STATIC", func(t api.Terminator) string { return t.StaticCost.String() }},
			{"DYNAMIC", func(t api.Terminator) string { return t.Dynamic.String() }},
			{"FAILURE", func(t api.Terminator) string { return t.Failure.String() }},
			{"SET-UP", func(t api.Terminator) string { return t.SetUp.String() }},
			{"COST", func(t api.Terminator) string { return t.Cost.String() }},
			{"CIRCUITS", func(t api.Terminator) string { return strconv.Itoa(t.Circuits) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newTerminatorCreateCmd(), newTerminatorUpdateCmd())...)
	return cmd
}

func hostedBy(t api.Terminator) string {
	if t.Host != "" && t.Carries() != ginnel.TCP {
		return string(t.Host) + " (" + string(t.Carries()) + ")"
	}
	if t.Host != "" {
		return string(t.Host)
	}
	return string(t.Address)
}

func checkState(t api.Terminator) string {
	switch {
	case t.Unhealthy:
		return "failed"
	case t.Checked:
		return "ok"
	case t.Check != nil:
		return "unknown" // its router has not said
	}
	return "-"
}

// precedenceNow gives the precedence that counts, and the one it stands for.
func precedenceNow(t api.Terminator) string {
	if t.Effective != t.Precedence {
		return t.Effective.String() + " (" + t.Precedence.String() + ")"
	}
	return t.Precedence.String()
}

// checkFlags adds the flags of a health check; the function gives the check, or
// nil where there is none.
func checkFlags(cmd *cobra.Command) func() (*ginnel.Check, error) {
	flags := cmd.Flags()
	kind := flags.String("check", "", "health check of this `KIND`: tcp (connects) or http (GET, status below 400); while it fails the precedence is failed")
	path := flags.String("check-path", "", "`PATH` that an http check gets (default /)")
	interval := flags.Duration("check-interval", 0, "between two checks (default 10s)")
	timeout := flags.Duration("check-timeout", 0, "of one check (default 2s, or the interval if that is shorter)")
	failures := flags.Int("check-failures", 0, "checks in a row that must fail (default 3)")
	successes := flags.Int("check-successes", 0, "checks in a row that must succeed after that (default 2)")
	return func() (*ginnel.Check, error) {
		if *kind == "" || *kind == noCheck {
			for _, name := range []string{"check-path", "check-interval", "check-timeout", "check-failures", "check-successes"} {
				if flags.Changed(name) {
					return nil, usagef("--%s: give --check too", name)
				}
			}
			return nil, nil
		}
		check := ginnel.Check{
			Kind: ginnel.CheckKind(*kind), Path: *path, Interval: ginnel.Duration(*interval), Timeout: ginnel.Duration(*timeout),
			Failures: *failures, Successes: *successes,
		}.WithDefaults()
		if err := check.Validate(); err != nil {
			return nil, usageError{err}
		}
		return &check, nil
	}
}

// noCheck is the value of --check that ends a health check.
const noCheck = "none"

func newTerminatorCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create SERVICE",
		Short:   "Let a router connect a service's circuits to an address",
		Example: "  ginnel terminator create web --router r2 --address tcp:127.0.0.1:8080",
	}
	router := cmd.Flags().String("router", "", "the egress `ROUTER`")
	address := cmd.Flags().String("address", "", "`ADDRESS` that it connects to, tcp:HOST:PORT or udp:HOST:PORT")
	precedence := cmd.Flags().String("precedence", "default", "`CLASS`: required, default or failed")
	instance := cmd.Flags().String("instance", "", "`NAME` of this one, for dials that ask for one")
	units := costFlag(cmd, 0, "static cost")
	checkOf := checkFlags(cmd)
	need(cmd, "router", "address")
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

func newTerminatorUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change a stored terminator; what no flag names stays",
		Example: "  ginnel terminator update web@r2 --precedence failed\n" +
			"  ginnel terminator update web@r2 --check http --check-path /ready\n" +
			"  ginnel terminator update web@r2 --check none",
	}
	address := cmd.Flags().String("address", "", "`ADDRESS` that its router connects to, tcp:HOST:PORT or udp:HOST:PORT")
	precedence := cmd.Flags().String("precedence", "", "`CLASS`: required, default or failed")
	instance := cmd.Flags().String("instance", "", "`NAME` of this one, for dials that ask for one")
	units := costFlag(cmd, 0, "static cost")
	checkOf := checkFlags(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		check, err := checkOf()
		if err != nil {
			return err
		}
		now, err := c.Terminators().Get(ctx, args[0])
		if err != nil {
			return err
		}
		if !now.Stored {
			return withHint(fmt.Errorf("terminator %s is bound by identity %s, which decides on it", now.ID, now.Host),
				"its host gives cost, precedence and check: ginnel listen --help")
		}
		change, flags := now.Terminator, cmd.Flags()
		if flags.Changed("address") {
			change.Address = ginnel.Address(*address)
		}
		if flags.Changed("precedence") {
			if change.Precedence, err = ginnel.ParsePrecedence(*precedence); err != nil {
				return usageError{err}
			}
		}
		if flags.Changed("instance") {
			change.Instance = *instance
		}
		if flags.Changed("cost") {
			if change.StaticCost, err = cost(*units); err != nil {
				return err
			}
		}
		if flags.Changed("check") {
			change.Check = check
		}
		if err := c.Terminators().Update(ctx, args[0], change); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "terminator "+args[0]+" updated")
	})
	return cmd
}
