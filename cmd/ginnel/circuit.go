// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/api"
)

func newCircuitCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "circuit", Short: "Running circuits: list, show, delete, watch; and how one came about"}
	n := noun[struct{}, api.Circuit]{
		name: "circuit", example: "$ID",
		of: func(c *api.Client) api.Collection[struct{}, api.Circuit] { return circuits{c} },
		columns: []column[api.Circuit]{
			{"CIRCUIT", func(c api.Circuit) string { return string(c.ID) }},
			{"SERVICE", func(c api.Circuit) string { return string(c.Service) }},
			{"CLIENT", func(c api.Circuit) string { return string(c.Client) }},
			{"PEER", func(c api.Circuit) string { return c.Peer.String() }},
			{"PROTOCOL", func(c api.Circuit) string { return string(c.Protocol) }},
			{"PATH", func(c api.Circuit) string { return list(c.Path) }},
			{"UP", func(c api.Circuit) string { return bitRate(c.SentRate) }},
			{"DOWN", func(c api.Circuit) string { return bitRate(c.ReceivedRate) }},
			{"GENERATION", func(c api.Circuit) string { return strconv.FormatUint(uint64(c.Generation), 10) }},
			{"SINCE", func(c api.Circuit) string { return ago(&c.Since) }},
		},
	}
	cmd.AddCommand(asks(n.verbs()...)...)
	cmd.AddCommand(asks(newCircuitExplainCmd(), newCircuitWatchCmd())...)
	return cmd
}

// circuits is a collection in which dials alone make things.
type circuits struct{ c *api.Client }

func (c circuits) List(ctx context.Context) ([]api.Circuit, error) { return c.c.ListCircuits(ctx) }

func (c circuits) Get(ctx context.Context, id string) (api.Circuit, error) {
	return c.c.GetCircuit(ctx, id)
}

func (c circuits) Delete(ctx context.Context, id string) error { return c.c.DeleteCircuit(ctx, id) }

func (c circuits) Create(context.Context, struct{}) (api.Created, error) {
	return api.Created{}, usagef("circuits are made by dials")
}

func (c circuits) Update(context.Context, string, struct{}) error {
	return usagef("circuits cannot be changed")
}
