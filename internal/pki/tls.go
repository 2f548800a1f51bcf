// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// ALPN names of the API (RFC 7301, section 6; RFC 9113, section 3.2).
const (
	alpnHTTP2 = "h2"
	alpnHTTP1 = "http/1.1"
)

// pair is the roles of the two ends of a connection.
type pair struct{ server, client ginnel.Role }

// pairs gives who may talk to whom over an ALPN; ALPNEnroll and ALPNCircuit
// have rules of their own.
func pairs(alpn string) []pair {
	const controller, router, identity = ginnel.RoleController, ginnel.RoleRouter, ginnel.RoleIdentity
	switch alpn {
	case wire.ALPNCtrl:
		return []pair{{router, controller}, {controller, router}}
	case wire.ALPNLink:
		return []pair{{router, router}}
	case wire.ALPNEdge:
		return []pair{{router, identity}}
	case alpnHTTP2, alpnHTTP1:
		return []pair{{controller, identity}}
	default:
		return nil
	}
}

func checkPair(alpn string, p pair, peer ginnel.Peer) error {
	if slices.Contains(pairs(alpn), p) {
		return nil
	}
	return fmt.Errorf("%w: %s on %q, with a %s as server and a %s as client", ErrRole, peer, alpn, p.server, p.client)
}

// baseConfig is what all configs have in common: TLS 1.3 and X25519 only,
// records of full size from the first, no resumption.
func baseConfig(now func() time.Time) *tls.Config {
	return &tls.Config{
		Time:                        now,
		MinVersion:                  tls.VersionTLS13,
		CurvePreferences:            []tls.CurveID{tls.X25519},
		DynamicRecordSizingDisabled: true,
		SessionTicketsDisabled:      true,
		// Server names say nothing here: VerifyConnection, which each config
		// sets and which also runs on resumed sessions, verifies the peer.
		InsecureSkipVerify: true,
	}
}

// ServerConfig is for a listener of a process that has a certificate. alpns are
// the protocols that it answers, the first preferred; ALPNEnroll always comes
// last. A client is accepted whose leaf is valid under the network's CA and
// whose role may use the negotiated protocol; on ALPNEnroll also one without a
// certificate, or with one that ended up to RenewGrace ago.
func ServerConfig(h *Holder, now func() time.Time, alpns ...string) *tls.Config {
	cfg := baseConfig(now)
	cfg.NextProtos = enrollLast(alpns)
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.Load().TLS(), nil }
	cfg.ClientAuth = tls.RequireAnyClientCert
	if slices.Contains(alpns, wire.ALPNEnroll) {
		cfg.ClientAuth = tls.RequestClientCert
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		c := h.Load()
		if cs.NegotiatedProtocol == wire.ALPNEnroll {
			return c.verifyEnrollee(cs, now())
		}
		leaf, err := presentedLeaf(cs)
		if err != nil {
			return err
		}
		peer, err := VerifyLeaf(leaf, c.CA, now())
		if err != nil {
			return err
		}
		return checkPair(cs.NegotiatedProtocol, pair{server: c.Self.Role, client: peer.Role}, peer)
	}
	return cfg
}

// ClientConfig is for dialing, by a process that has a certificate, the peer
// want over one of alpns. An empty id in want stands for any of that role, the
// zero Peer for anyone whose role may answer. The server is accepted whose leaf
// is valid under the network's CA, is want's, and whose role may use the
// negotiated protocol.
//
// A controller that offers ALPNEnroll accepts on that protocol a router that
// has no certificate yet (a self-signed one), or one that ended up to
// RenewGrace ago: who it is, its token says. Others accept on ALPNEnroll a
// controller or router, as for every other protocol.
func ClientConfig(h *Holder, now func() time.Time, want ginnel.Peer, alpns ...string) *tls.Config {
	cfg := baseConfig(now)
	cfg.NextProtos = slices.Clone(alpns)
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return h.Load().TLS(), nil }
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		c := h.Load()
		if cs.NegotiatedProtocol == wire.ALPNEnroll && c.Self.Role == ginnel.RoleController {
			return c.verifyFreshRouter(cs, want, now())
		}
		leaf, err := presentedLeaf(cs)
		if err != nil {
			return err
		}
		peer, err := VerifyLeaf(leaf, c.CA, now())
		if err != nil {
			return err
		}
		if err := checkWanted(peer, want); err != nil {
			return err
		}
		if cs.NegotiatedProtocol == wire.ALPNEnroll {
			return checkEnrollServer(peer)
		}
		return checkPair(cs.NegotiatedProtocol, pair{server: peer.Role, client: c.Self.Role}, peer)
	}
	return cfg
}

// enrollLast gives alpns with ALPNEnroll at the end: a client that also offers
// another protocol is not there to enroll.
func enrollLast(alpns []string) []string {
	out := slices.Clone(alpns)
	slices.SortStableFunc(out, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == wire.ALPNEnroll:
			return 1
		case b == wire.ALPNEnroll:
			return -1
		default:
			return 0
		}
	})
	return out
}
