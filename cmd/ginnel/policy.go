// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newPolicyCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Policies: who may dial, bind, and use which edge routers"}
	n := noun[ginnel.Policy, ginnel.Policy]{
		name: "policy", example: "staff-web",
		of: (*api.Client).Policies,
		columns: []column[ginnel.Policy]{
			{"POLICY", func(p ginnel.Policy) string { return string(p.ID) }},
			{"KIND", func(p ginnel.Policy) string { return string(p.Kind) }},
			{"IDENTITIES", func(p ginnel.Policy) string { return list(p.Identities) }},
			{"SERVICES", func(p ginnel.Policy) string { return list(p.Services) }},
			{"ROUTERS", func(p ginnel.Policy) string { return list(p.Routers) }},
			{"MATCH", func(p ginnel.Policy) string { return match(p.AllOf) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newPolicyCreateCmd(), newPolicyUpdateCmd(), newPolicyWhyCmd())...)
	return cmd
}

func match(allOf bool) string {
	if allOf {
		return "all-of"
	}
	return "any-of"
}

func newPolicyCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Allow identities something; lists take #role, @id and #all",
		Example: "  ginnel policy create staff-web --kind dial --identity '#staff' --service '#internal'",
	}
	kind := cmd.Flags().String("kind", "", "`KIND`: dial, bind or edge-router")
	identities := cmd.Flags().StringArray("identity", nil, "`WHO`: #role, @id or #all")
	services := cmd.Flags().StringArray("service", nil, "which `SERVICES`: #role, @id or #all")
	routers := cmd.Flags().StringArray("router", nil, "which edge `ROUTERS`, with --kind edge-router: #role, @id or #all")
	allOf := cmd.Flags().Bool("all-of", false, "who must have all roles of a list, not any")
	need(cmd, "kind")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		p := ginnel.Policy{
			ID: ginnel.PolicyID(args[0]), Kind: ginnel.PolicyKind(*kind),
			Identities: *identities, Services: *services, Routers: *routers, AllOf: *allOf,
		}
		made, err := c.Policies().Create(ctx, p)
		if err != nil {
			return err
		}
		return said(cmd, made, "policy "+made.ID+" created"+unmade(ctx, c, p))
	})
	return cmd
}

func newPolicyUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change a policy; a list that a flag names is replaced, what no flag names stays",
		Example: "  ginnel policy update staff-web --identity '#staff' --identity @carl",
	}
	flags := cmd.Flags()
	identities := flags.StringArray("identity", nil, "`WHO`: #role, @id or #all")
	services := flags.StringArray("service", nil, "which `SERVICES`; \"\" for none")
	routers := flags.StringArray("router", nil, "which edge `ROUTERS`, of a policy of kind edge-router")
	allOf := flags.Bool("all-of", false, "who must have all roles of a list, not any")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		p, err := c.Policies().Get(ctx, args[0])
		if err != nil {
			return err
		}
		if flags.Changed("identity") {
			p.Identities = named(*identities)
		}
		if flags.Changed("service") {
			p.Services = named(*services)
		}
		if flags.Changed("router") {
			p.Routers = named(*routers)
		}
		if flags.Changed("all-of") {
			p.AllOf = *allOf
		}
		if err := c.Policies().Update(ctx, args[0], p); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "policy "+args[0]+" updated"+unmade(ctx, c, p))
	})
	return cmd
}

// unmade says what a policy names that is not there: it may come later, or be a
// slip of the pen.
func unmade(ctx context.Context, c *api.Client, p ginnel.Policy) string {
	var all strings.Builder
	note := func(noun string, selectors []string, get func(id string) error) {
		for _, s := range selectors {
			id, named := strings.CutPrefix(s, "@")
			if !named {
				continue
			}
			if p, ok := errors.AsType[*api.Problem](get(id)); ok && p.Kind == ginnel.KindNotFound {
				fmt.Fprintf(&all, "; there is no %s %s yet", noun, id)
			}
		}
	}
	note("identity", p.Identities, func(id string) error { _, err := c.Identities().Get(ctx, id); return err })
	note("service", p.Services, func(id string) error { _, err := c.Services().Get(ctx, id); return err })
	note("router", p.Routers, func(id string) error { _, err := c.Routers().Get(ctx, id); return err })
	return all.String()
}
