// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
)

func newRouterCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "router", Short: "Routers: create, enroll, run, list"}
	n := noun[api.RouterCreate, api.Router]{
		name: "router", example: "r1",
		of: (*api.Client).Routers,
		columns: []column[api.Router]{
			{"ROUTER", func(r api.Router) string { return string(r.ID) }},
			{"ENROLLED", func(r api.Router) string { return yes(r.Enrolled) }},
			{"CONNECTED", func(r api.Router) string { return yes(r.Connected) }},
			{"QUIESCED", func(r api.Router) string { return yes(r.Quiesced) }},
			{"SINCE", func(r api.Router) string { return ago(r.Since) }},
			{"COST", func(r api.Router) string { return max(r.Cost, ginnel.MinRouterCost).String() }},
			{"ROLES", func(r api.Router) string { return list(r.Roles) }},
			{"CTRL LISTENERS", func(r api.Router) string { return listeners(r.CtrlListeners) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newRouterCreateCmd(), newRouterUpdateCmd(), newTokenCmd(ginnel.RoleRouter),
		newQuiesceCmd("quiesce", "Give a router no new circuits; those it has stay", true),
		newQuiesceCmd("resume", "Give a quiesced router new circuits again", false))...)
	cmd.AddCommand(newRouterInitCmd(), newRouterRunCmd())
	return cmd
}

func listeners(ls []ginnel.Listener) string {
	addresses := make([]ginnel.Address, len(ls))
	for i, l := range ls {
		addresses[i] = l.Address
	}
	return list(addresses)
}

func newRouterCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a router and print its enrollment token",
		Example: "  ginnel router create r1 --ctrl-address tls:192.0.2.1:7001 > r1.token\n" +
			"  ginnel router create r2 > r2.token    # it dials the controller",
	}
	addresses := cmd.Flags().StringArray("ctrl-address", nil, "`ADDRESS` where the controller shall dial it, tls:HOST:PORT, in order; none: the router dials the controller")
	roles := cmd.Flags().StringArray("role", nil, "a `ROLE` that policies can name")
	noTraversal := cmd.Flags().Bool("no-traversal", false, "first or last on a path only")
	units := costFlag(cmd, 0, "cost of entering it")
	life := lifeFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		price, err := cost(*units)
		if err != nil {
			return err
		}
		made, err := c.Routers().Create(ctx, api.RouterCreate{
			Router:        ginnel.Router{ID: ginnel.RouterID(args[0]), Roles: *roles, NoTraversal: *noTraversal, Cost: price},
			CtrlAddresses: *addresses,
			TokenLife:     ginnel.Duration(*life),
		})
		if err != nil {
			return adviseCreate(ginnel.RoleRouter, args[0], err)
		}
		return printToken(cmd, made)
	})
	return cmd
}

func newRouterUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change a router; what no flag names stays",
		Example: "  ginnel router update r2 --cost 1000",
	}
	disabled := cmd.Flags().Bool("disabled", false, "hang up, and do not dial or accept it")
	noTraversal := cmd.Flags().Bool("no-traversal", false, "first or last on a path only")
	roles := cmd.Flags().StringArray("role", nil, "a `ROLE` of its; \"\" for none")
	addresses := cmd.Flags().StringArray("ctrl-address", nil, "`ADDRESS` where the controller shall dial it, tls:HOST:PORT, in order")
	units := costFlag(cmd, 0, "cost of entering it")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		now, err := c.Routers().Get(ctx, args[0])
		if err != nil {
			return err
		}
		change := api.RouterCreate{Router: now.Router}
		flags := cmd.Flags()
		if flags.Changed("disabled") {
			change.Disabled = *disabled
		}
		if flags.Changed("no-traversal") {
			change.NoTraversal = *noTraversal
		}
		if flags.Changed("role") {
			change.Roles = named(*roles)
		}
		if flags.Changed("ctrl-address") {
			change.CtrlAddresses = *addresses
		}
		if flags.Changed("cost") {
			if change.Cost, err = cost(*units); err != nil {
				return err
			}
		}
		if err := c.Routers().Update(ctx, args[0], change); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "router "+args[0]+" updated")
	})
	return cmd
}

// newQuiesceCmd begins or ends that a router takes no new circuits.
func newQuiesceCmd(verb, short string, quiesced bool) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " NAME",
		Short:   short,
		Example: "  ginnel router " + verb + " r2",
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			now, err := c.Routers().Get(ctx, args[0])
			if err != nil {
				return err
			}
			change := api.RouterCreate{Router: now.Router}
			change.Quiesced = quiesced
			if err := c.Routers().Update(ctx, args[0], change); err != nil {
				return err
			}
			word := map[bool]string{true: "quiesced", false: "resumed"}[quiesced]
			return said(cmd, api.Created{ID: args[0]}, "router "+args[0]+" "+word)
		}),
	}
}

// newTokenCmd makes a new token for a router or identity; the earlier one ends.
func newTokenCmd(role ginnel.Role) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token NAME",
		Short:   "Print a new enrollment token; earlier ones and the enrolled key end with its use",
		Example: "  ginnel " + string(role) + " token NAME > NAME.token",
	}
	life := lifeFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		made, err := c.Token(ctx, role, args[0], api.TokenCreate{TokenLife: ginnel.Duration(*life)})
		if err != nil {
			return err
		}
		return printToken(cmd, made)
	})
	return cmd
}

// adviseCreate adds, where a router or identity is there already, how to get what its
// creation printed.
func adviseCreate(role ginnel.Role, id string, err error) error {
	if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Kind == ginnel.KindConflict {
		return withHint(err, "a new token for it: ginnel "+string(role)+" token "+id)
	}
	return err
}

// printToken writes a token so that it can be redirected to a file, which is its
// owner's alone from then on. One that serves nobody is told beside it.
func printToken(cmd *cobra.Command, made api.Created) error {
	if wantJSON(cmd) {
		return printJSON(cmd, made)
	}
	if t, err := pki.ParseToken(pki.Secret(made.Token)); err == nil && t.Peer.Role == ginnel.RoleIdentity && len(t.Addresses) == 0 {
		hint := "ginnel: hint: the token names no edge router, so nobody can enroll with it: once there is one that %s may use, ginnel identity token %[1]s\n"
		if err := writeText(cmd.ErrOrStderr(), fmt.Sprintf(hint, made.ID)); err != nil {
			return err
		}
	}
	ownerOnly(cmd.OutOrStdout())
	return writeText(cmd.OutOrStdout(), made.Token+"\n")
}
