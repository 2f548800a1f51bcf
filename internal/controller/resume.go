// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// resumption is what a resume has beyond a dial.
type resumption struct {
	number uint32
	ticket *wire.Signed // the circuit's own, as the client showed it
	// end is the circuit's terminator at the router where its host end is now.
	end ginnel.Terminator
}

// detached gives err, or PEER_DETACHED in place of what says that the one
// router is not connected where the circuit can end.
func (r *resumption) detached(err *ginnel.DialError) *ginnel.DialError {
	if err.Code != ginnel.NoOnlineTerminators {
		return err
	}
	return ginnel.Errorf(ginnel.PeerDetached, "the host's end was last seen at router %s, which is not connected", r.end.Router)
}

// resumeRequest takes a ResumeRequest that router ch passed on.
func (cs *circuits) resumeRequest(ch outlet, m *wire.Message) {
	s := cs.newSetup(ch, m)
	cs.admit(s, cs.readResume(m.GetResumeRequest()))
}

// readResume reads a resume: that the client of a ticket has signed it, and
// that the store would let it dial again.
func (cs *circuits) readResume(request *wire.ResumeRequest) reader {
	return func(s *setup) (decide, *wire.Failure) {
		var q wire.Resume
		signer, refused := cs.verify(s, request.GetResume(), wire.DomainResume, &q, request.GetIdentity())
		if refused != nil {
			return nil, refused
		}
		ticket, err := cs.readTicket(q.GetTicket(), s.decision.client)
		if err != nil {
			return nil, failure(err)
		}
		s.decision.service, s.decision.circuit = ginnel.ServiceID(ticket.GetService()), ginnel.CircuitID(ticket.GetCircuit())
		s.deadline = deadline(s.timing.received, q.GetDeadlineMs())
		return func() *ginnel.DialError { return cs.decideResume(s, signer, &q, ticket) }, nil
	}
}

// decideResume fills in the set-up of a resume that was verified.
func (cs *circuits) decideResume(s *setup, signer pki.Signer, q *wire.Resume, ticket *wire.Ticket) *ginnel.DialError {
	r := cs.c.rules()
	service, err := authorizeDial(r, signer, ginnel.ServiceID(ticket.GetService()), s.from.id())
	if seen := int64(r.Revision()); err != nil && seen < ticket.GetRevision() {
		err = ginnel.Errorf(ginnel.Busy, "this controller has seen revision %d of the store, the ticket is of %d", seen, ticket.GetRevision())
		err.RetryAfter = ginnel.Duration(circuit.UnsureRetry)
	}
	if err != nil {
		return err
	}
	s.decision = decision{
		network: cs.c.network, circuit: ginnel.CircuitID(ticket.GetCircuit()),
		service: service.ID, client: s.decision.client, dialHash: ticket.GetDialHash(), revision: r.Revision(),
		protocol: ginnel.Protocol(ticket.GetProtocol()),
	}
	rows := cs.underlay.endpoints(s.decision.circuit)
	end := hostEnd(ticket, rows)
	if err := checkNumber(rows, q.GetNumber(), end.Router, s.from.id()); err != nil {
		return err
	}
	s.service = service
	s.resume = &resumption{number: q.GetNumber(), ticket: q.GetTicket(), end: end}
	return nil
}

// readTicket verifies the ticket of a resume by client.
func (cs *circuits) readTicket(signed *wire.Signed, client ginnel.IdentityID) (*wire.Ticket, *ginnel.DialError) {
	ticket, err := pki.ReopenTicket(signed, cs.c.holder.Load().CA)
	switch {
	case err != nil:
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "%v", err)
	case ticket.GetNetwork() != string(cs.c.network):
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "ticket is of network %q", ticket.GetNetwork())
	case ticket.GetClient() != string(client):
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "ticket of circuit %s is not of identity %s", ticket.GetCircuit(), client)
	case ticket.GetCircuit() == "":
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "ticket names no circuit")
	}
	return ticket, nil
}

// checkNumber refuses a resume that is not newer than the path in use, as the
// routers tell it that are to be its ends. What another says could be the lie of
// one that the circuit has left; it would keep the circuit from ever being resumed.
func checkNumber(rows []*endpointRow, number uint32, ends ...ginnel.RouterID) *ginnel.DialError {
	if number == 0 || number > circuit.MaxResume {
		return ginnel.Errorf(ginnel.StaleGeneration, "resume number %d, want 1 to %d", number, circuit.MaxResume)
	}
	for _, row := range rows {
		if used := circuit.ResumeNumber(row.generation); used >= number && slices.Contains(ends, row.router) {
			return ginnel.Errorf(ginnel.StaleGeneration, "resume %d, while router %s has a path of resume %d", number, row.router, used)
		}
	}
	return nil
}

// hostEnd gives the terminator of a ticket at the router where the host's end
// of the circuit is: the egress router itself, or for a host behind it the one
// that it attached to last. While no attach is known, that is the ticket's; the
// router says PEER_DETACHED when the end is not there.
func hostEnd(ticket *wire.Ticket, rows []*endpointRow) ginnel.Terminator {
	end := ginnel.Terminator{
		ID:         ginnel.TerminatorID(ticket.GetTerminator()),
		Service:    ginnel.ServiceID(ticket.GetService()),
		Router:     ginnel.RouterID(ticket.GetRouter()),
		Precedence: ginnel.DefaultPrecedence,
	}
	if pki.TicketPeer(ticket).Role != ginnel.RoleIdentity {
		return end
	}
	end.Host = ginnel.IdentityID(ticket.GetPeer())
	var newest *endpointRow
	for _, row := range rows {
		if row.host && row.attach != nil && (newest == nil || row.sequence > newest.sequence) {
			newest = row
		}
	}
	if newest != nil {
		end.Router = newest.router
	}
	return end
}
