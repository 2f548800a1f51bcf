// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"

	"github.com/ginnel/ginnel/internal/transport"
)

// edge takes the connections of SDKs.
type edge struct{ r *Router }

func newEdge(r *Router) *edge { return &edge{r: r} }

// serve takes an authenticated edge connection, before its Handshake, and
// returns when it has ended.
func (e *edge) serve(_ context.Context, conn *transport.Conn) { conn.Close(nil) }

// count gives the number of edge connections.
func (e *edge) count() int { return 0 }
