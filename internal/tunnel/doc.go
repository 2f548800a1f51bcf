// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package tunnel carries the connections of unchanged programs to services,
// and those of services to unchanged programs.
//
// A Tunnel joins the resolver (package dns) and the operating system's side
// (package intercept) to a Dialer. Programs come in by four front ends: a
// SOCKS5 and HTTP CONNECT proxy, listeners with a fixed target, intercepted
// connections, and the resolver that gives names their addresses. A name or
// address that belongs to no service is refused: nothing ever goes to the
// real network. Forward is the other side: it connects what arrives for a
// bound service to an address.
//
// The package opens no circuits of its own; that is the Dialer's work.
package tunnel
