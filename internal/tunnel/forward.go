// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/splice"
)

// ForwardConfig says how connections for a bound service are carried on. The
// zero value is usable.
type ForwardConfig struct {
	Connections int           // most at a time; 0: 1024
	DialTimeout time.Duration // 0: 5 s
	Grace       time.Duration // left to connections when Forward ends; 0: none
	Dialer      net.Dialer    // opens the connections to addresses
	ProxyHeader bool          // a hosted TCP server is told the program's address (PROXY protocol)
	Log         *slog.Logger  // nil: nothing is logged
	// Connect gives the connection that an accepted one is joined to. Nil: one to
	// the address.
	Connect func(ctx context.Context, accepted net.Conn) (net.Conn, error)
}

// Forward connects each connection that listener accepts to address, a
// "tcp:" one, or a "udp:" one if its connections carry datagrams, until ctx ends;
// then it closes the listener and returns nil. Where the connection fails, the
// accepted one is reset.
func Forward(ctx context.Context, listener net.Listener, address ginnel.Address, cfg ForwardConfig) error {
	if _, err := ginnel.ParseAddress(string(address), false, "tcp", "udp"); err != nil {
		return errors.Join(fmt.Errorf("forward: %w", err), listener.Close())
	}
	if cfg.Connect == nil {
		cfg.Connect = func(ctx context.Context, _ net.Conn) (net.Conn, error) { return connectBy(ctx, &cfg.Dialer, address) }
	}
	return forward(ctx, listener, string(address), cfg)
}

// forward connects each connection that listener accepts by cfg.Connect. name
// says where to, for errors and logs.
func forward(ctx context.Context, listener net.Listener, name string, cfg ForwardConfig) error {
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	f := &frontEnd{
		name:     "forward to " + name,
		listener: listener,
		limit:    cmp.Or(cfg.Connections, 1024),
		grace:    cfg.Grace,
		log:      log,
		serve: func(ctx context.Context, fabric net.Conn) {
			dialCtx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.DialTimeout, 5*time.Second))
			program, err := cfg.Connect(dialCtx, fabric)
			cancel()
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

// Connect opens a connection to address, a "tcp:" or "udp:" one. The error is a
// *ginnel.DialError whose code says why.
func Connect(ctx context.Context, address ginnel.Address) (net.Conn, error) {
	return connectBy(ctx, &net.Dialer{}, address)
}

func connectBy(ctx context.Context, dialer *net.Dialer, address ginnel.Address) (net.Conn, error) {
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
