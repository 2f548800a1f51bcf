// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
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

// connectUDP is connect for a terminator of datagrams: a socket of its own for
// each circuit, so that answers find it. Whether anybody listens there shows when
// the first datagram is sent: a closed port then ends the circuit, and counts
// against the terminator.
func (rt *routing) connectUDP(ctx context.Context, r *row, ticket *wire.Ticket) ([]byte, error) {
	c, h := rt.c, rt.host
	socket, err := c.r.udp.DialContext(ctx, "udp", h.term.address.HostPort())
	if err != nil {
		c.unhost(h)
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.terms.failed(h.term)
		}
		return nil, ginnel.Errorf(splice.Code(ctx, err), "router %s: terminator %s: %v", c.r.id, h.term.id, err)
	}
	circuit, flight, err := h.begin(r, ticket, rt.route.GetEgress())
	if err != nil {
		c.unhost(h)
		_ = socket.Close()
		return nil, err
	}
	c.terms.opened(h.term)
	c.r.running.Go(func() {
		flow := datagram.New(circuit, datagram.Config{
			Idle: pki.TicketIdle(ticket, true), Answered: answeredAt(h.term.address),
		})
		stop := context.AfterFunc(c.r.ctx, func() { _ = socket.Close() })
		defer stop()
		datagram.Join(socket, flow, func(err error) {
			if errors.Is(err, syscall.ECONNREFUSED) {
				c.terms.failed(h.term)
			}
			circuit.Abort(splice.Code(c.r.ctx, err), "the server's socket: "+err.Error())
		})
		c.terms.closed(h.term)
	})
	return flight, nil
}

// answeredAt gives after which time a flow to an address ends whose questions
// all have their answers; 0: only with its idle time-out.
func answeredAt(address ginnel.Address) time.Duration {
	if strings.HasSuffix(string(address), ":53") {
		return answeredTime
	}
	return 0
}
