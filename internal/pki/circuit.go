// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuitServerName stands in the ClientHello of every circuit, which routers
// read: it tells nothing.
const circuitServerName = "circuit.ginnel.internal"

// CircuitClientConfig is for the client's end of the TLS inside a circuit to
// service. The ClientHello is made before there is a ticket, so ticket is asked
// once the host's first bytes are in: it gives the verified ticket of this dial
// (OpenTicket, CheckTicketForClient), or why there is none. Only a leaf that is
// the ticket's peer, and valid when the config is made, is accepted, on resumed
// sessions too.
//
// Sessions are kept in cache, which may be shared by all dials of a process:
// one for each service, that of its last peer. Nil: no resumption.
func CircuitClientConfig(
	h *Holder, now func() time.Time, service ginnel.ServiceID,
	cache tls.ClientSessionCache, ticket func() (*wire.Ticket, error),
) *tls.Config {
	cfg := circuitConfig(now)
	// A session that is resumed has the host's certificate of an earlier dial, which
	// was valid when this one chose it.
	began := now()
	cfg.ServerName = circuitServerName
	if cache != nil {
		cfg.SessionTicketsDisabled = false
		cfg.ClientSessionCache = serviceCache{cache: cache, key: string(service)}
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return h.Load().bare, nil }
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		t, err := ticket()
		if err != nil {
			return fmt.Errorf("ticket of a circuit to %s: %w", service, err)
		}
		return h.Load().verifyCircuit(cs, began, TicketPeer(t))
	}
	return cfg
}

// CircuitServer makes the configs of the hosting ends of circuits in one
// process. They share what wraps sessions, so that a client resumes
// with any later circuit to the same host. Safe for concurrent use.
type CircuitServer struct {
	holder   *Holder
	now      func() time.Time
	sessions *sessions
}

// NewCircuitServer makes a CircuitServer that shows the credential of h.
func NewCircuitServer(h *Holder, now func() time.Time) *CircuitServer {
	return &CircuitServer{holder: h, now: now, sessions: newSessions(now)}
}

// Config is for the host's end of the TLS inside the circuit of t, a verified
// ticket (OpenTicket, CheckTicketForPeer). Only a leaf that is the ticket's
// client, and valid when the config is made, is accepted, on resumed sessions too.
func (s *CircuitServer) Config(t *wire.Ticket) *tls.Config {
	cfg := circuitConfig(s.now)
	cfg.SessionTicketsDisabled = false
	cfg.WrapSession = s.sessions.wrap
	cfg.UnwrapSession = s.sessions.unwrap
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.holder.Load().bare, nil }
	// Not one of the stricter kinds: they know nothing of our CA, and would
	// refuse to resume sessions that they did not verify themselves.
	cfg.ClientAuth = tls.RequireAnyClientCert
	client, began := TicketClient(t), s.now() // as at the other end
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		return s.holder.Load().verifyCircuit(cs, began, client)
	}
	return cfg
}

func circuitConfig(now func() time.Time) *tls.Config {
	cfg := baseConfig(now)
	cfg.NextProtos = []string{wire.ALPNCircuit}
	return cfg
}

// verifyCircuit accepts the leaf of want only.
func (c *Credential) verifyCircuit(cs tls.ConnectionState, at time.Time, want ginnel.Peer) error {
	if err := checkALPN(cs, wire.ALPNCircuit); err != nil {
		return err
	}
	if err := CheckPeer(want); err != nil {
		return fmt.Errorf("%w: %w", ErrTicket, err)
	}
	leaf, err := presentedLeaf(cs)
	if err != nil {
		return err
	}
	peer, err := VerifyLeaf(leaf, c.CA, at)
	if err != nil {
		return err
	}
	return checkWanted(peer, want)
}

// serviceCache keeps sessions by service in place of by server name.
type serviceCache struct {
	cache tls.ClientSessionCache
	key   string
}

// Get gives the session of the service's last peer.
func (c serviceCache) Get(string) (*tls.ClientSessionState, bool) { return c.cache.Get(c.key) }

// Put keeps the session of the service's last peer.
func (c serviceCache) Put(_ string, s *tls.ClientSessionState) { c.cache.Put(c.key, s) }
