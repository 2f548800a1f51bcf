// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/sdk"
)

// TestTokenNamesOwnEdgeRouters makes identities where no policy opens all edge routers:
// one enrolls over its own, and of a token that serves nobody that is told.
func TestTokenNamesOwnEdgeRouters(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.router("r1", nil)
		m.router("r2", nil)
		m.controller("c1")
		m.wait(5 * time.Second)
		create := func(id string, edges ...string) (token, hint string) {
			made, err := createIdentity(m.Context(), m.api("c1"), api.IdentityCreate{Identity: ginnel.Identity{ID: ginnel.IdentityID(id)}}, edges)
			m.must(err)
			var stdout, stderr strings.Builder
			cmd := new(cobra.Command)
			cmd.SetOut(&stdout)
			cmd.SetErr(&stderr)
			m.must(printToken(cmd, made))
			return stdout.String(), stderr.String()
		}
		host := m.net.Host("new")
		dialed := map[string]bool{}
		network := sdk.WithDialNetwork(func(ctx context.Context, _, address string) (net.Conn, error) {
			dialed[address] = true
			return host.Dial(ctx, address)
		})
		token, hint := create("carol", "r2")
		identity, err := sdk.Enroll(m.Context(), token, network)
		m.must(err)
		if !dialed["r2:1"] || len(dialed) != 1 || hint != "" {
			m.Errorf("%s enrolled over %v, told %q", identity, dialed, hint)
		}
		if _, hint := create("dora"); !strings.Contains(hint, "names no edge router") || !strings.Contains(hint, "ginnel identity token dora") {
			m.Errorf("of a token without edge routers: %q", hint)
		}
	})
}
