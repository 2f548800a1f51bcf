// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// ticketVersion is the version of tickets that this code makes and takes.
const ticketVersion = 1

// ErrTicket says that a ticket is genuine, but not for what it was shown for.
var ErrTicket = errors.New("ticket is for something else")

// SignTicket signs t by a controller's credential, and sets its version.
func SignTicket(c *Credential, t *wire.Ticket) (*wire.Signed, error) {
	t.Version = ticketVersion
	s, err := Sign(c, wire.DomainTicket, t)
	if err == nil {
		remember(s, wire.DomainTicket, c.CA)
	}
	return s, err
}

// OpenTicket verifies a ticket that was just issued, and decodes it.
func OpenTicket(s *wire.Signed, ca *x509.Certificate, now time.Time) (*wire.Ticket, error) {
	return OpenTicketFrom(s, ca, now, nil)
}

// OpenTicketFrom is OpenTicket of what a controller sent over its own connection,
// on which it has shown the leaf by. A ticket that the same key is to have signed
// is taken without looking at its signature: the connection says who made it.
func OpenTicketFrom(s *wire.Signed, ca *x509.Certificate, now time.Time, by *x509.Certificate) (*wire.Ticket, error) {
	t := new(wire.Ticket)
	_, payload, err := open(s, wire.DomainTicket, ca, now, by, []ginnel.Role{ginnel.RoleController})
	if err == nil {
		err = decode(payload, wire.DomainTicket, t)
	}
	if err != nil {
		return nil, err
	}
	if t.GetVersion() != ticketVersion {
		return nil, fmt.Errorf("%w: ticket version %d, want %d", ErrMalformed, t.GetVersion(), ticketVersion)
	}
	return t, nil
}

// ReopenTicket verifies a ticket of a circuit that runs, whose controller's
// certificate may have ended since: it must have been valid when the ticket
// was issued. Only for uses that are checked against the store again.
func ReopenTicket(s *wire.Signed, ca *x509.Certificate) (*wire.Ticket, error) {
	t := new(wire.Ticket)
	if len(s.GetPayload()) > maxPayload {
		return nil, fmt.Errorf("%w: envelope of %s is too large", ErrMalformed, wire.DomainTicket)
	}
	if err := decode(s.GetPayload(), wire.DomainTicket, t); err != nil {
		return nil, err
	}
	t, err := OpenTicket(s, ca, time.Unix(0, t.GetIssued()))
	if err == nil {
		remember(s, wire.DomainTicket, ca)
	}
	return t, err
}

// DialHash gives the hash by which a ticket names a Dial: SHA-256 of the
// payload of its envelope.
func DialHash(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return sum[:]
}

// TicketPeer gives who answers end to end according to a ticket.
func TicketPeer(t *wire.Ticket) ginnel.Peer {
	return ginnel.Peer{Role: ginnel.Role(t.GetPeerRole()), ID: t.GetPeer()}
}

// TicketProtocol gives what the circuit of a ticket carries.
func TicketProtocol(t *wire.Ticket) ginnel.Protocol {
	return cmp.Or(ginnel.Protocol(t.GetProtocol()), ginnel.TCP)
}

// hostIdle is what a host's end waits longer than the client's: where both close
// at one instant, neither knows that the other is done, and they rest.
const hostIdle = time.Second

// TicketIdle gives after how long without a datagram an end of the ticket's
// circuit, the host's or the client's, closes it.
func TicketIdle(t *wire.Ticket, host bool) time.Duration {
	limit := cmp.Or(time.Duration(t.GetIdleMs())*time.Millisecond, ginnel.DefaultIdleTimeout)
	if host {
		limit += hostIdle
	}
	return limit
}

// TicketClient gives who dialed according to a ticket.
func TicketClient(t *wire.Ticket) ginnel.Peer {
	return ginnel.Peer{Role: ginnel.RoleIdentity, ID: t.GetClient()}
}

// CheckTicketForClient reports whether a ticket answers the dial of service by
// self whose hash is dialHash. It wraps ErrTicket if not.
func CheckTicketForClient(t *wire.Ticket, network ginnel.NetworkID, self ginnel.IdentityID, service ginnel.ServiceID, dialHash []byte) error {
	switch {
	case t.GetNetwork() != string(network):
		return fmt.Errorf("%w: network %q, not %q", ErrTicket, t.GetNetwork(), network)
	case t.GetClient() != string(self):
		return fmt.Errorf("%w: client %q, not %q", ErrTicket, t.GetClient(), self)
	case t.GetService() != string(service):
		return fmt.Errorf("%w: service %q, not %q", ErrTicket, t.GetService(), service)
	case !bytes.Equal(t.GetDialHash(), dialHash):
		return fmt.Errorf("%w: another dial", ErrTicket)
	}
	return checkTicketEnds(t)
}

// CheckTicketForPeer reports whether a ticket brings a circuit to self, at a
// terminator that self has now, according to has. It wraps ErrTicket if not.
// That each generation is taken once is for the caller to see to.
func CheckTicketForPeer(t *wire.Ticket, network ginnel.NetworkID, self ginnel.Peer, has func(ginnel.TerminatorID) bool) error {
	switch {
	case t.GetNetwork() != string(network):
		return fmt.Errorf("%w: network %q, not %q", ErrTicket, t.GetNetwork(), network)
	case TicketPeer(t) != self:
		return fmt.Errorf("%w: peer %s, not %s", ErrTicket, TicketPeer(t), self)
	case !has(ginnel.TerminatorID(t.GetTerminator())):
		return fmt.Errorf("%w: terminator %q, which %s does not have", ErrTicket, t.GetTerminator(), self)
	}
	return checkTicketEnds(t)
}

// checkTicketEnds reports whether a ticket names two possible ends and a circuit.
func checkTicketEnds(t *wire.Ticket) error {
	if t.GetCircuit() == "" {
		return fmt.Errorf("%w: it names no circuit", ErrTicket)
	}
	for _, end := range []ginnel.Peer{TicketClient(t), TicketPeer(t)} {
		if err := CheckPeer(end); err != nil {
			return fmt.Errorf("%w: %w", ErrTicket, err)
		}
		if end.Role == ginnel.RoleController {
			return fmt.Errorf("%w: %s at the end of a circuit", ErrTicket, end)
		}
	}
	return nil
}
