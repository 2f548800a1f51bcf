// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// network is the name of every network that is measured.
const network = "bench"

// newController makes controller c1 on a network in memory, where it listens at c1:1.
func newController(ca *pki.CA, st *store.Store, at *pipe.Network) (*controller.Controller, error) {
	own, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
	if err != nil {
		return nil, err
	}
	cfg := controller.DefaultConfig()
	cfg.Listen = "tls:c1:1"
	return controller.New(controller.Options{
		Config: cfg, Holder: pki.NewHolder(own), CA: ca, Store: st, Network: at.Host("c1"), Log: slog.New(slog.DiscardHandler),
	})
}

// dialController makes a ctrl channel of a router to c1, as soon as that listens.
func dialController(ctx context.Context, at *pipe.Network, own *pki.Credential, hello *wire.RouterHello) (*transport.Conn, error) {
	id, holder := own.Self.ID, pki.NewHolder(own)
	cfg := pki.ClientConfig(holder, time.Now, ginnel.Peer{Role: ginnel.RoleController}, wire.ALPNCtrl)
	var conn *transport.Conn
	var err error
	for range 200 {
		if conn, err = transport.DialFramed(ctx, at.Host(id), "c1:1", cfg, transport.IdentifyBy(holder)); err == nil || ctx.Err() != nil {
			break
		}
		pause(ctx, 5*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("router %s: %w", id, err)
	}
	greeting := transport.Greeting{Self: id, Hello: &wire.Hello{Network: network, Boot: "b", Router: hello}}
	if _, err := conn.Handshake(ctx, greeting); err != nil {
		return nil, fmt.Errorf("router %s: %w", id, err)
	}
	return conn, nil
}
