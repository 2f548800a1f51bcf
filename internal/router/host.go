// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/splice"
	"github.com/ginnel/ginnel/internal/wire"
)

// setUp begins what the egress does before it answers a Route: on a goroutine of
// its own it connects, or asks the hosting SDK. That ends with the row.
func (c *circuits) setUp(rt *routing, r *row) {
	if rt.host != nil && rt.route.GetEgress().GetResume() {
		c.finish(rt, r, nil, rt.host.newPath(r))
		return
	}
	if rt.host != nil {
		rt.host.row = r
		c.mu.Lock()
		c.hosted[r.circuit] = rt.host
		c.mu.Unlock()
	}
	limit := remaining(rt.route.GetEgress().GetConnectMs(), connectTime)
	ctx, cancel := context.WithTimeout(c.r.ctx, limit)
	r.role.cancel = cancel
	sign := time.AfterFunc(signTime, rt.sign)
	c.r.running.Go(func() {
		defer cancel()
		defer sign.Stop()
		endpoint.Deepen()
		var early []byte
		var err error
		if rt.host != nil {
			early, err = rt.connect(ctx, r)
		} else {
			early, err = rt.ask(ctx, r)
		}
		c.finish(rt, r, early, err)
		c.post(setUpOver{r})
	})
}

// signTime is how long the egress connects before it says that it does: mostly it
// is done by then, and the answer is sign enough. A controller waits for one for a
// second, and holds back other set-ups meanwhile.
const signTime = 20 * time.Millisecond

// sign tells the controller that the connection is being made. Who does not hear
// it does not hear the answer either.
func (rt *routing) sign() {
	m := &wire.RouteConnecting{Circuit: rt.route.GetCircuit(), Generation: rt.route.GetGeneration()}
	_ = rt.ch.conn.Notify(&wire.Message{Body: &wire.Message_RouteConnecting{RouteConnecting: m}})
}

// finish answers the Route of an egress; a row that came to nothing goes.
func (c *circuits) finish(rt *routing, r *row, early []byte, err error) {
	if err == nil {
		rt.succeed(early)
		return
	}
	d, ok := errors.AsType[*ginnel.DialError](err)
	if !ok {
		code, known := errors.AsType[ginnel.Code](err)
		if !known {
			code = ginnel.RouterErrGeneric
		}
		d = ginnel.Errorf(code, "router %s: %v", c.r.id, err)
	}
	rt.fail(d)
	c.post(takenBack{r})
}

// connect makes the connection of a terminator of this router and takes up the
// client's handshake. It gives the host's first bytes.
func (rt *routing) connect(ctx context.Context, r *row) ([]byte, error) {
	c, h := rt.c, rt.host
	ticket, err := rt.admit()
	if err != nil {
		c.unhost(h)
		return nil, err
	}
	dial, carry := c.r.net.Dial, h.carry
	if protocolOf(h.term.address) == ginnel.UDP {
		dial, carry = c.r.dialUDP, h.carryUDP
	}
	// The two take their time at once: one waits for the network, the other computes.
	host := h.begin(ticket, rt.route.GetEgress())
	conn, err := dial(ctx, h.term.address.HostPort())
	if err != nil {
		c.unhost(h)
		host.Fail(err)
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.terms.failed(h.term)
		}
		return nil, ginnel.Errorf(splice.Code(ctx, err), "router %s: terminator %s: %v", c.r.id, h.term.id, err)
	}
	circuit, flight, err := h.take(host, r)
	if err != nil {
		c.unhost(h)
		splice.Abort(conn)
		return nil, err
	}
	c.terms.opened(h.term)
	c.r.running.Go(func() {
		carry(conn, circuit, ticket)
		c.terms.closed(h.term)
	})
	return flight, nil
}

// carry joins a circuit to the connection of its terminator, until both are over.
func (h *hosted) carry(conn net.Conn, circuit *endpoint.Conn, _ *wire.Ticket) {
	splice.Join(conn, circuit, func(err error) {
		circuit.Abort(ginnel.PeerReset, "the server's connection: "+err.Error())
		splice.Abort(conn)
	})
}

// admit verifies the ticket: it must bring the circuit to this router, at this
// terminator.
func (rt *routing) admit() (*wire.Ticket, error) {
	c, e := rt.c, rt.route.GetEgress()
	ticket, err := pki.OpenTicketFrom(e.GetTicket(), c.r.self.held().Load().CA, time.Now(), rt.ch.conn.Leaf())
	if err == nil {
		self := ginnel.Peer{Role: ginnel.RoleRouter, ID: string(c.r.id)}
		err = pki.CheckTicketForPeer(ticket, c.r.netID, self, func(id ginnel.TerminatorID) bool {
			return id == rt.term.id && c.terms.has(rt.term)
		})
	}
	if err == nil && ticket.GetCircuit() != rt.route.GetCircuit() {
		err = fmt.Errorf("%w: circuit %q", pki.ErrTicket, ticket.GetCircuit())
	}
	if err != nil {
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "router %s: %v", c.r.id, err)
	}
	if p := pki.TicketProtocol(ticket); p != protocolOf(rt.term.address) {
		return nil, ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "router %s: terminator %s is %s, which a circuit for %s cannot use", c.r.id, rt.term.id, rt.term.address, p)
	}
	return ticket, nil
}

// begin takes up the client's handshake.
func (h *hosted) begin(ticket *wire.Ticket, e *wire.Egress) *endpoint.Host {
	c := h.c
	cfg := endpoint.Config{
		Budget: c.budget, Slabs: c.slabs, Circuit: h.circuit,
		Ended:    h.ended,
		NewBatch: newBatch,
	}
	local, remote := endpoint.Addr(ticket.GetService()), endpoint.Addr(ticket.GetClient())
	return endpoint.NewHost(cfg, c.server().Config(ticket), e.GetEarly(), local, remote)
}

// take gives the circuit its path, once it is known what to answer the client.
func (h *hosted) take(host *endpoint.Host, r *row) (*endpoint.Conn, []byte, error) {
	flight, err := host.Flight()
	if err != nil {
		err = ginnel.Errorf(ginnel.NotAuthenticated, "router %s: the client's first bytes: %v", h.c.r.id, err)
		host.Fail(err)
		return nil, nil, err
	}
	conn, err := h.up(host, r)
	if err != nil {
		return nil, nil, err
	}
	return conn, flight, nil
}

// server gives what shows this router's certificate inside circuits.
func (c *circuits) server() *pki.CircuitServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown == nil {
		c.shown = pki.NewCircuitServer(c.r.self.held(), time.Now)
	}
	return c.shown
}

// hosts reports whether a circuit that ends here is up and not over.
func (c *circuits) hosts(h *hosted) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosted[h.circuit] == h && h.stream.Load() != nil
}

// unhost forgets a circuit that did not come about, or is over.
func (c *circuits) unhost(h *hosted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hosted[h.circuit] == h {
		delete(c.hosted, h.circuit)
	}
}

// ended takes the end of the stream, of which nothing is left; err is nil when it
// ended in order.
func (h *hosted) ended(err error) {
	h.mu.Lock()
	if h.stream.Load() == nil { // it never had a path: who set it up knows
		h.mu.Unlock()
		return
	}
	r := h.row
	h.conn = nil // its rows stay for a while, and need none of it
	h.stream.Store(nil)
	h.mu.Unlock()
	h.c.unhost(h)
	if r != nil {
		r.vanish()
	}
	code, _ := errors.AsType[*ginnel.DialError](err)
	h.c.endpoints.hostEnded(h, codeOf(code))
}

func codeOf(err *ginnel.DialError) ginnel.Code {
	if err == nil {
		return ginnel.CodeOK
	}
	return err.Code
}
