// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/record"
)

// Identify says who a peer is whose certificate TLS has verified.
type Identify func(tls.ConnectionState) (pki.Remote, error)

// IdentifyBy identifies peers of the network whose credential h holds.
func IdentifyBy(h *pki.Holder) Identify {
	return func(cs tls.ConnectionState) (pki.Remote, error) { return pki.PeerOf(cs, h.Load().CA) }
}

// Dial connects to hostport and gives the connection once TLS is up; cfg
// verifies the peer (pki.ClientConfig) and offers protocols. ctx bounds all. What
// comes next depends on the protocol that was agreed: Framed makes a Conn,
// ReadMessage and WriteMessage serve an enrollment.
func Dial(ctx context.Context, network Network, hostport string, cfg *tls.Config) (*tls.Conn, error) {
	nc, err := network.Dial(ctx, hostport)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	t := secured(nc, cfg, true)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("dial %s: %w", hostport, unspoken(t, err, cfg.NextProtos))
	}
	if len(cfg.NextProtos) > 0 && t.ConnectionState().NegotiatedProtocol == "" {
		_ = nc.Close()
		return nil, fmt.Errorf("dial %s: %w: %s", hostport, ErrALPN, strings.Join(cfg.NextProtos, ", "))
	}
	return t, nil
}

// noProtocol is the alert of a server that speaks none of the protocols that
// were offered (RFC 7301, section 3.2).
const noProtocol = tls.AlertError(120)

// unspoken gives err of a handshake, as ErrALPN too where that is what it means:
// the server said so, or it chose no protocol and so nobody may be behind it.
func unspoken(t *tls.Conn, err error, offered []string) error {
	said, ok := errors.AsType[*net.OpError](err)
	alert := ok && said.Op == "remote error" && said.Err.Error() == noProtocol.Error()
	silent := errors.Is(err, pki.ErrRole) && t.ConnectionState().NegotiatedProtocol == ""
	if len(offered) > 0 && (alert || silent) {
		return fmt.Errorf("%w: %s: %w", ErrALPN, strings.Join(offered, ", "), err)
	}
	return err
}

// DialFramed is Dial and Framed in one, for a single protocol.
func DialFramed(ctx context.Context, network Network, hostport string, cfg *tls.Config, identify Identify) (*Conn, error) {
	t, err := Dial(ctx, network, hostport, cfg)
	if err != nil {
		return nil, err
	}
	c, err := Framed(t, identify)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", hostport, err)
	}
	return c, nil
}

// Framed makes a Conn of a TLS connection that came from Dial or a Server and
// was not read from or written to. On an error t is closed.
func Framed(t *tls.Conn, identify Identify) (*Conn, error) {
	state := t.ConnectionState()
	remote, err := identify(state)
	if err != nil {
		_ = t.NetConn().Close()
		return nil, err
	}
	r := t.NetConn().(*raw)
	in, out, err := r.secrets.Halves(state.CipherSuite, r.client)
	if err != nil {
		_ = t.NetConn().Close()
		return nil, err
	}
	return assemble(record.NewReader(in, nil), out, r, remote, state.NegotiatedProtocol), nil
}

// sourceOf gives what counts as one source of strangers: an IPv4 address, or the
// /64 of an IPv6 address, which one machine may have to itself.
func sourceOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		return netip.PrefixFrom(ip.WithZone(""), 64).Masked().String()
	}
	return ip.String()
}
