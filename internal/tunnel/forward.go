// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"log/slog"
	"net"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/splice"
)

// maxForwarded is how many connections of a hosted service are carried on at a time.
const maxForwarded = 1024

// ForwardConfig says how connections for a bound service are carried on. The
// zero value is usable.
type ForwardConfig struct {
	Dialer      net.Dialer   // opens the connections to addresses
	ProxyHeader bool         // a hosted TCP server is told the program's address (PROXY protocol)
	Log         *slog.Logger // nil: nothing is logged
}

// forward joins each connection that listener accepts to what connect gives for it,
// until ctx ends; then it closes the listener and returns nil. Where there is no such
// connection, the accepted one is reset. name says where to, for errors and logs.
func forward(ctx context.Context, listener net.Listener, name string, connect func(ctx context.Context, accepted net.Conn) (net.Conn, error), log *slog.Logger) error {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	f := &frontEnd{
		name:     "forward to " + name,
		listener: listener,
		limit:    maxForwarded,
		log:      log,
		serve: func(ctx context.Context, fabric net.Conn) {
			program, err := connect(ctx, fabric)
			if err != nil {
				splice.Abort(fabric)
				log.Info("connection to the hosted address failed", "address", name, "err", err)
				return
			}
			if flow, ok := fabric.(datagram.Flow); ok {
				relayDatagrams(ctx, program, flow)
				return
			}
			relay(ctx, program, fabric)
		},
	}
	return f.run(ctx)
}

// connectTo opens a connection to address, a "tcp:" or "udp:" one. The error is a
// *ginnel.DialError whose code says why.
func connectTo(ctx context.Context, dialer *net.Dialer, address ginnel.Address) (net.Conn, error) {
	network := address.Scheme()
	if network != "tcp" && network != "udp" {
		return nil, ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "address %s: want tcp:HOST:PORT or udp:HOST:PORT", address)
	}
	conn, err := dialer.DialContext(ctx, network, address.HostPort())
	if err != nil {
		return nil, ginnel.Errorf(splice.Code(ctx, err), "%s: %v", address, err)
	}
	return conn, nil
}
