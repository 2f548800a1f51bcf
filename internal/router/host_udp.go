// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/splice"
	"github.com/ginnel/ginnel/internal/wire"
)

// answeredTime is how long a circuit to a DNS server stays when all its questions
// have their answers: the next one may be on its way.
const answeredTime = time.Second

// protocolOf gives the protocol that an address is of; empty: none that this
// router can host.
func protocolOf(address ginnel.Address) ginnel.Protocol {
	switch p := ginnel.Protocol(address.Scheme()); p {
	case ginnel.TCP, ginnel.UDP:
		return p
	}
	return ""
}

// dialUDP opens a socket of datagrams to a terminator: one for each circuit, so that
// answers find it. Whether anybody listens there shows when the first one is sent.
func (r *Router) dialUDP(ctx context.Context, hostport string) (net.Conn, error) {
	return r.udp.DialContext(ctx, "udp", hostport)
}

// carryUDP is carry for datagrams. A closed port ends the circuit, and counts
// against the terminator.
func (h *hosted) carryUDP(socket net.Conn, circuit *endpoint.Conn, ticket *wire.Ticket) {
	r := h.c.r
	flow := datagram.New(circuit, datagram.Config{
		Idle: pki.TicketIdle(ticket, true), Answered: answeredAt(h.term.address),
	})
	stop := context.AfterFunc(r.ctx, func() { _ = socket.Close() })
	defer stop()
	datagram.Join(socket, flow, func(err error) {
		if errors.Is(err, syscall.ECONNREFUSED) {
			h.c.terms.failed(h.term)
		}
		circuit.Abort(splice.Code(r.ctx, err), "the server's socket: "+err.Error())
	})
}

// answeredAt gives after which time a flow to an address ends whose questions
// all have their answers; 0: only with its idle time-out.
func answeredAt(address ginnel.Address) time.Duration {
	if strings.HasSuffix(string(address), ":53") {
		return answeredTime
	}
	return 0
}
