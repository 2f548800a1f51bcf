// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func newIdentityCmd() *cobra.Command {
	cmd := asks(&cobra.Command{Use: "identity", Short: "Identities: create, enroll, list"})
	n := noun[api.IdentityCreate, api.Identity]{
		name: "identity",
		of:   (*api.Client).Identities,
		columns: []column[api.Identity]{
			{"IDENTITY", func(i api.Identity) string { return string(i.ID) }},
			{"ENROLLED", func(i api.Identity) string { return yes(i.Enrolled) }},
			{"DISABLED", func(i api.Identity) string { return yes(i.Disabled) }},
			{"ROLES", func(i api.Identity) string { return list(i.Roles) }},
			{"EDGE ROUTERS", func(i api.Identity) string { return list(i.Routers) }},
		},
	}
	cmd.AddCommand(n.verbs()...)
	cmd.AddCommand(newIdentityCreateCmd(), newIdentityUpdateCmd(), newIdentityEnrollCmd(), newTokenCmd(ginnel.RoleIdentity))
	return cmd
}

func newIdentityCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an identity and print its enrollment token",
		Args:  cobra.ExactArgs(1),
	}
	roles := cmd.Flags().StringArray("role", nil, "a role that policies can name")
	admin := cmd.Flags().Bool("admin", false, "may administer the network through the API")
	readOnly := cmd.Flags().Bool("read-only", false, "may look at everything through the API and change nothing")
	cmd.MarkFlagsMutuallyExclusive("admin", "read-only")
	life := lifeFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		made, err := c.Identities().Create(ctx, api.IdentityCreate{
			Identity:  ginnel.Identity{ID: ginnel.IdentityID(args[0]), Roles: *roles, Admin: *admin, ReadOnly: *readOnly},
			TokenLife: ginnel.Duration(*life),
		})
		if err != nil {
			return err
		}
		return printToken(cmd, made)
	})
	return cmd
}

func newIdentityUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change an identity; what no flag names stays",
		Args:  cobra.ExactArgs(1),
	}
	disabled := cmd.Flags().Bool("disabled", false, "end all it has and refuse it")
	roles := cmd.Flags().StringArray("role", nil, "its roles")
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		now, err := c.Identities().Get(ctx, args[0])
		if err != nil {
			return err
		}
		change := api.IdentityCreate{Identity: now.Identity}
		if cmd.Flags().Changed("disabled") {
			change.Disabled = *disabled
		}
		if cmd.Flags().Changed("role") {
			change.Roles = *roles
		}
		if err := c.Identities().Update(ctx, args[0], change); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "identity "+args[0]+" updated")
	})
	return cmd
}
