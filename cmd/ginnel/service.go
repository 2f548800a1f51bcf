// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/intercept"
)

func newServiceCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "service", Short: "Services: create, change, list"}
	n := noun[ginnel.Service, api.Service]{
		name: "service", example: "web",
		of: (*api.Client).Services,
		columns: []column[api.Service]{
			{"SERVICE", func(s api.Service) string { return string(s.ID) }},
			{"ROLES", func(s api.Service) string { return list(s.Roles) }},
			{"STRATEGY", func(s api.Service) string { return string(s.Strategy) }},
			{"INTERCEPT", func(s api.Service) string { return interceptText(s.Intercept) }},
			{"TERMINATORS", func(s api.Service) string { return strconv.Itoa(s.Terminators) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newServiceCreateCmd(), newServiceUpdateCmd())...)
	return cmd
}

func interceptText(i *ginnel.Intercept) string {
	if i == nil {
		return ""
	}
	text := list(i.Addresses) + ":" + list(i.Ports)
	if len(i.Protocols) > 0 && !slices.Equal(i.Protocols, []string{"tcp"}) {
		text += "/" + list(i.Protocols)
	}
	return text
}

func newServiceCreateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a service",
		Example: "  ginnel service create web --role internal --intercept web.internal:80",
	}
	roles := cmd.Flags().StringArray("role", nil, "a `ROLE` that policies can name")
	strategy := cmd.Flags().String("strategy", string(ginnel.Smartrouting), "`NAME`: smartrouting, weighted, random or sticky")
	attempts := attemptsFlag(cmd)
	intercepts := cmd.Flags().StringArray("intercept", nil, "`[tcp:|udp:]NAME:PORT` or NAME:FIRST-LAST that programs connect to; NAME may be *.NAME for all below it, an IP address or a prefix, of IPv6 in brackets")
	idle := idleFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		i, err := parseIntercepts(*intercepts)
		if err != nil {
			return err
		}
		made, err := c.Services().Create(ctx, ginnel.Service{
			ID: ginnel.ServiceID(args[0]), Roles: *roles, Strategy: ginnel.Strategy(*strategy), Intercept: i,
			Attempts: *attempts, IdleTimeout: ginnel.Duration(*idle),
		})
		if err != nil {
			return err
		}
		if err := tellIntercept(cmd, i); err != nil {
			return err
		}
		return said(cmd, made, "service "+made.ID+" created")
	})
	return cmd
}

func idleFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("idle-timeout", 0, "after how long without a datagram a UDP circuit ends; 0: 60s")
}

func attemptsFlag(cmd *cobra.Command) *int {
	return cmd.Flags().Int("attempts", 0, "most attempts of a dial; 0: 3")
}

func newServiceUpdateCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "update NAME",
		Short:   "Change a service; what no flag names stays",
		Example: "  ginnel service update web --strategy weighted",
	}
	flags := cmd.Flags()
	roles := flags.StringArray("role", nil, "a `ROLE` of its; \"\" for none")
	strategy := flags.String("strategy", "", "`NAME`: smartrouting, weighted, random or sticky")
	intercepts := flags.StringArray("intercept", nil, "`[tcp:|udp:]NAME:PORT` that programs connect to, all of it, as for create; \"\" for nothing")
	attempts, idle := attemptsFlag(cmd), idleFlag(cmd)
	cmd.RunE = asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
		i, err := parseIntercepts(named(*intercepts))
		if err != nil {
			return err
		}
		now, err := c.Services().Get(ctx, args[0])
		if err != nil {
			return err
		}
		change := now.Service
		if flags.Changed("role") {
			change.Roles = named(*roles)
		}
		if flags.Changed("strategy") {
			change.Strategy = ginnel.Strategy(*strategy)
		}
		if flags.Changed("intercept") {
			change.Intercept = i
		}
		if flags.Changed("attempts") {
			change.Attempts = *attempts
		}
		if flags.Changed("idle-timeout") {
			change.IdleTimeout = ginnel.Duration(*idle)
		}
		if err := c.Services().Update(ctx, args[0], change); err != nil {
			return err
		}
		if err := tellIntercept(cmd, i); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: args[0]}, "service "+args[0]+" updated")
	})
	return cmd
}

// tellIntercept says on standard error which addresses no tunneler takes connections
// to. They are of use all the same: to programs that ask for them by themselves.
func tellIntercept(cmd *cobra.Command, i *ginnel.Intercept) error {
	for _, address := range neverIntercepted(i) {
		line := fmt.Sprintf("ginnel: %s is not intercepted, only reached through a proxy (--socks) or the SDK: this host, its links and multicast stay as they are\n", address)
		if err := writeText(cmd.ErrOrStderr(), line); err != nil {
			return err
		}
	}
	return nil
}

func neverIntercepted(i *ginnel.Intercept) (list []string) {
	if i == nil {
		return nil
	}
	for _, text := range i.Addresses {
		if prefix, ok := dns.RealAddresses(text); ok && intercept.Never(prefix) {
			list = append(list, text)
		}
	}
	return list
}

// parseIntercepts joins the flags into one Intercept. It holds every
// combination of its lists, so flags that mean less than that are refused.
func parseIntercepts(texts []string) (*ginnel.Intercept, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	i := &ginnel.Intercept{}
	seen := map[string]bool{}
	for _, text := range texts {
		protocol, rest := "tcp", text
		for _, p := range []string{"tcp", "udp"} {
			if after, ok := strings.CutPrefix(text, p+":"); ok {
				protocol, rest = p, after
			}
		}
		name, port, ok := strings.Cut(rest, ":")
		if inner, bracketed := strings.CutPrefix(rest, "["); bracketed { // IPv6
			name, port, ok = strings.Cut(inner, "]:")
		}
		if !ok || name == "" || port == "" || strings.Contains(port, ":") {
			return nil, usagef("--intercept %q: want NAME:PORT, an IPv6 address or prefix in brackets", text)
		}
		i.Protocols = union(i.Protocols, protocol)
		i.Addresses = union(i.Addresses, name)
		i.Ports = union(i.Ports, port)
		seen[protocol+" "+name+" "+port] = true
	}
	if len(seen) != len(i.Protocols)*len(i.Addresses)*len(i.Ports) {
		return nil, withHint(usagef("a service takes every port on every name that it intercepts"), "make one service for each set of ports")
	}
	return i, nil
}

func union(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
