// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of what one SDK can make this router keep.
const (
	maxBinds    = 1024
	maxAttached = 4096
)

// bind takes a terminator of the SDK. Whether its identity may host the service
// is for controllers to judge, who get the Bind as it is.
func (ec *edgeConn) bind(m *wire.Message, request *wire.BindRequest) *ginnel.DialError {
	r, signed := ec.e.r, request.GetBind()
	payload, refused := ec.signed(signed, wire.DomainBind)
	if refused != nil {
		return refused
	}
	b := new(wire.Bind)
	if err := proto.Unmarshal(payload, b); err != nil {
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s: the bind cannot be read", r.id)
	}
	_, unknown := ginnel.ParseProtocol(b.GetProtocol())
	switch err := ginnel.CheckName(b.GetService()); {
	case b.GetNetwork() != string(r.netID) || b.GetRouter() != string(r.id):
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s of %s: the bind is for router %q of %q", r.id, r.netID, b.GetRouter(), b.GetNetwork())
	case err != nil:
		return ginnel.Errorf(ginnel.InvalidService, "%v", err)
	case unknown != nil:
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "bind for %.64s", unknown)
	case b.GetPrecedence() > uint32(ginnel.Failed) || b.GetCost() < 0:
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "bind with cost %d and precedence %d", b.GetCost(), b.GetPrecedence())
	}
	ts := &r.circuits.terms
	t := &term{
		id: wire.BindTerminatorID(b, ec.identity, payload), service: ginnel.ServiceID(b.GetService()),
		conn: ec, bind: signed, host: ec.identity,
		checked: request.GetChecked(), unhealthy: request.GetChecked() && request.GetUnhealthy(),
	}
	if ts.bound(ec) >= maxBinds {
		return ginnel.Errorf(ginnel.Busy, "router %s: this connection has bound %d terminators", r.id, maxBinds)
	}
	if !ts.bind(t) {
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "router %s: terminator %s is another's", r.id, t.id)
	}
	answer := &wire.BindResponse{Terminator: string(t.id)}
	_ = ec.conn.Reply(m.GetId(), &wire.Message{Body: &wire.Message_BindResponse{BindResponse: answer}})
	return nil
}

// attach notes that the host's end of a circuit is behind this connection now.
func (ec *edgeConn) attach(m *wire.Message, signed *wire.Signed) *ginnel.DialError {
	r := ec.e.r
	payload, refused := ec.signed(signed, wire.DomainAttach)
	if refused != nil {
		return refused
	}
	a := new(wire.Attach)
	if err := proto.Unmarshal(payload, a); err != nil {
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s: the attach cannot be read", r.id)
	}
	ticket, err := pki.ReopenTicket(a.GetTicket(), r.self.held().Load().CA)
	switch {
	case err != nil:
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s: %v", r.id, err)
	case a.GetRouter() != string(r.id) || ticket.GetNetwork() != string(r.netID) || pki.TicketPeer(ticket) != ec.conn.Peer():
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s: the attach is not by the circuit's host to this router", r.id)
	}
	if err := r.circuits.endpoints.attach(ec, signed, a, ticket); err != nil {
		return err
	}
	_ = ec.conn.ReplyDone(m.GetId())
	return nil
}

// bound gives how many terminators a connection has.
func (ts *terms) bound(ec *edgeConn) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.byID {
		if t.conn == ec {
			n++
		}
	}
	return n
}
