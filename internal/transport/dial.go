// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/ginnel/ginnel"
)

// Identify says who a peer is whose certificate TLS has verified.
type Identify func(tls.ConnectionState) (ginnel.Peer, error)

// Dial connects to hostport and gives the connection once both ends have shown
// who they are; cfg verifies the peer and offers one protocol. ctx bounds all.
func Dial(ctx context.Context, network Network, hostport string, cfg *tls.Config, identify Identify) (*Conn, error) {
	t, r, err := dial(ctx, network, hostport, cfg)
	if err != nil {
		return nil, err
	}
	c, err := authenticated(t, r, identify)
	if err != nil {
		_ = t.NetConn().Close()
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	return c, nil
}

// DialTLS is Dial for protocols that are no frames: the TLS connection after
// its handshake.
func DialTLS(ctx context.Context, network Network, hostport string, cfg *tls.Config) (*tls.Conn, error) {
	t, _, err := dial(ctx, network, hostport, cfg)
	return t, err
}

func dial(ctx context.Context, network Network, hostport string, cfg *tls.Config) (*tls.Conn, *raw, error) {
	nc, err := network.Dial(ctx, hostport)
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	r := newRaw(nc)
	t := tls.Client(r, aligned(cfg))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	if t.ConnectionState().NegotiatedProtocol == "" && len(cfg.NextProtos) > 0 {
		_ = nc.Close()
		return nil, nil, fmt.Errorf("dial %s: %w: %s", hostport, ErrALPN, cfg.NextProtos[0])
	}
	return t, r, nil
}

// authenticated makes a Conn of a TLS connection after its handshake.
func authenticated(t *tls.Conn, r *raw, identify Identify) (*Conn, error) {
	peer, err := identify(t.ConnectionState())
	if err != nil {
		return nil, err
	}
	return newConn(t, r, peer)
}

// aligned gives cfg with records of full size from the start, so that a full
// frame is one record.
func aligned(cfg *tls.Config) *tls.Config {
	if cfg.DynamicRecordSizingDisabled {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.DynamicRecordSizingDisabled = true
	return cfg
}

// hostOf gives the host of an address, for counting.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
