// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newIdentityCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "identity", Short: "Identities: create, change, enroll, list"}
	n := noun[api.IdentityCreate, api.Identity]{
		name: "identity", example: "alice",
		of: (*api.Client).Identities,
		columns: []column[api.Identity]{
			{"IDENTITY", func(i api.Identity) string { return string(i.ID) }},
			{"ENROLLED", func(i api.Identity) string { return yes(i.Enrolled) }},
			{"DISABLED", func(i api.Identity) string { return yes(i.Disabled) }},
			{"ROLES", func(i api.Identity) string { return list(i.Roles) }},
			{"EDGE ROUTERS", func(i api.Identity) string { return list(i.Routers) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newIdentityCreateCmd(), newIdentityUpdateCmd(), newTokenCmd(ginnel.RoleIdentity))...)
	cmd.AddCommand(newIdentityEnrollCmd())
	return cmd
}

func newIdentityCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create an identity and print its enrollment token",
		Example: "  ginnel identity create alice --role staff > alice.token",
	}
	roles := cmd.Flags().StringArray("role", nil, "a `ROLE` that policies can name")
	admin := cmd.Flags().Bool("admin", false, "may administer the network through the API")
	readOnly := cmd.Flags().Bool("read-only", false, "may look at everything through the API and change nothing")
	cmd.MarkFlagsMutuallyExclusive("admin", "read-only")
	edges := edgeRouterFlag(cmd)
	life := lifeFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		made, err := createIdentity(ctx, c, api.IdentityCreate{
			Identity:  ginnel.Identity{ID: ginnel.IdentityID(args[0]), Roles: *roles, Admin: *admin, ReadOnly: *readOnly},
			TokenLife: ginnel.Duration(*life),
		}, *edges)
		if err != nil {
			return adviseCreate(ginnel.RoleIdentity, args[0], err)
		}
		return printToken(cmd, made)
	})
	return cmd
}

// createIdentity makes an identity, its own edge-router policy where edges are given,
// and its token. The policy needs the identity, and the token names whom the policy lets
// it use: so it is made last, in place of the first.
func createIdentity(ctx context.Context, c *api.Client, in api.IdentityCreate, edges []string) (api.Created, error) {
	made, err := c.Identities().Create(ctx, in)
	if err != nil || len(edges) == 0 {
		return made, err
	}
	if err := allowEdgeRouters(ctx, c, made.ID, edges); err != nil {
		return api.Created{}, err
	}
	return c.Token(ctx, ginnel.RoleIdentity, made.ID, api.TokenCreate{TokenLife: in.TokenLife})
}

func edgeRouterFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringArray("edge-router", nil,
		"an edge `ROUTER` that it may use, as the policy edge-NAME says; \"\" for none but those of other policies")
}

// allowEdgeRouters makes an identity's own edge-router policy, edge-NAME, name
// these routers; without any there is none.
func allowEdgeRouters(ctx context.Context, c *api.Client, identity string, routers []string) error {
	p := ginnel.Policy{
		ID: ginnel.PolicyID("edge-" + identity), Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + identity},
	}
	for _, r := range routers {
		if r != "" {
			p.Routers = append(p.Routers, "@"+r)
		}
	}
	old, err := c.Policies().Get(ctx, string(p.ID))
	problem, refused := errors.AsType[*api.Problem](err)
	there := err == nil
	switch {
	case err != nil && (!refused || problem.Kind != ginnel.KindNotFound):
		return err
	case there && (old.Kind != p.Kind || !slices.Equal(old.Identities, p.Identities) || len(old.Services) > 0):
		return withHint(fmt.Errorf("policy %s is not the edge-router policy of identity %s alone", p.ID, identity),
			"say which routers with ginnel policy create NAME --kind edge-router")
	case len(p.Routers) == 0 && there:
		return c.Policies().Delete(ctx, string(p.ID))
	case len(p.Routers) == 0:
		return nil
	case there:
		return c.Policies().Update(ctx, string(p.ID), p)
	}
	_, err = c.Policies().Create(ctx, p)
	return err
}

func newIdentityUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change an identity; what no flag names stays",
		Example: "  ginnel identity update alice --disabled",
	}
	flags := cmd.Flags()
	disabled := flags.Bool("disabled", false, "end all it has and refuse it")
	roles := flags.StringArray("role", nil, "a `ROLE` of its; \"\" for none")
	admin := flags.Bool("admin", false, "may administer the network through the API")
	readOnly := flags.Bool("read-only", false, "may look at everything through the API and change nothing")
	edges := edgeRouterFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		now, err := c.Identities().Get(ctx, args[0])
		if err != nil {
			return err
		}
		change := api.IdentityCreate{Identity: now.Identity}
		if flags.Changed("disabled") {
			change.Disabled = *disabled
		}
		if flags.Changed("role") {
			change.Roles = named(*roles)
		}
		if flags.Changed("admin") {
			change.Admin = *admin
		}
		if flags.Changed("read-only") {
			change.ReadOnly = *readOnly
		}
		if err := c.Identities().Update(ctx, args[0], change); err != nil {
			return err
		}
		if flags.Changed("edge-router") {
			if err := allowEdgeRouters(ctx, c, args[0], *edges); err != nil {
				return err
			}
		}
		return said(cmd, api.Created{ID: args[0]}, "identity "+args[0]+" updated")
	})
	return cmd
}

// named gives the values of a flag that can be given as "" to mean none.
func named(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
}
