// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// decision is what a ticket says of the dial that was allowed; it is the same
// for all attempts.
type decision struct {
	network  ginnel.NetworkID
	circuit  ginnel.CircuitID
	service  ginnel.ServiceID
	client   ginnel.IdentityID
	dialHash []byte
	revision store.Revision // of the store that the decision was made from
	protocol ginnel.Protocol
	idle     time.Duration // of a circuit of datagrams; 0: the default of its ends
	// source and destination are what the client says of its program.
	source, destination string
}

// ticket signs the ticket of an attempt at a terminator.
func (d decision) ticket(c *pki.Credential, t ginnel.Terminator, now time.Time) (*wire.Signed, error) {
	peer := t.Peer()
	return pki.SignTicket(c, &wire.Ticket{
		Network:    string(d.network),
		Circuit:    string(d.circuit),
		Service:    string(d.service),
		Client:     string(d.client),
		PeerRole:   string(peer.Role),
		Peer:       peer.ID,
		Terminator: string(t.ID),
		Router:     string(t.Router),
		DialHash:   d.dialHash,
		Revision:   int64(d.revision),
		Issued:     now.UnixNano(),
		Protocol:   string(d.protocol),
		IdleMs:     uint32(d.idle.Milliseconds()),
		Source:     d.source, Destination: d.destination,
	})
}
