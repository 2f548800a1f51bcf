// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxPath bounds the routers of a path.
	maxPath = 64
	// routeTime is how long a Route that names no deadline has.
	routeTime = 10 * time.Second
	// connectTime is how long a connection may take where the Route does not say.
	connectTime = 5 * time.Second
	// longest bounds both.
	longest = 2 * time.Minute
)

// routing is a Route on its way through this router.
type routing struct {
	c        *circuits
	ch       *ctrlChannel
	id       uint64 // of the message; 0: a notice, answered by one
	route    *wire.Route
	deadline time.Time
	ends     [2]label.End
	role     *rowRole          // nil: transit
	host     *hosted           // the circuit ends in this router; nil: it does not
	sdk      *edgeConn         // the circuit ends behind it; nil: it does not
	term     *term             // of the egress; nil: not here
	refusal  *ginnel.DialError // why it is not carried out, whatever the table says; nil: it may be
}

// event gives the Route as the table takes it. One that is refused comes too
// late there, since the labels that it names are used up all the same.
func (rt *routing) event() label.Event {
	if rt.refusal != nil {
		rt.deadline = time.Time{}
		rt.ends = [2]label.End{{Arrive: label.Label(rt.route.GetUpIn())}, {Arrive: label.Label(rt.route.GetDownIn())}}
	}
	return label.Route{
		Channel: rt.ch.number, Circuit: ginnel.CircuitID(rt.route.GetCircuit()), Generation: rt.route.GetGeneration(),
		Deadline: rt.deadline, Ends: rt.ends,
	}
}

// succeed answers the Route; early are the host's first bytes.
func (rt *routing) succeed(early []byte) { rt.answer(&wire.RouteResult{Early: early}) }

// fail answers the Route.
func (rt *routing) fail(err *ginnel.DialError) {
	err.Circuit = ginnel.CircuitID(rt.route.GetCircuit())
	rt.answer(&wire.RouteResult{Failure: wire.FailureOf(err)})
}

// answer sends the answer. A controller that cannot take it misses it in time.
func (rt *routing) answer(result *wire.RouteResult) {
	result.Circuit, result.Generation = rt.route.GetCircuit(), rt.route.GetGeneration()
	_ = rt.ch.conn.Reply(rt.id, &wire.Message{Body: &wire.Message_RouteResult{RouteResult: result}})
}

// route takes a Route on the channel's reading goroutine.
func (c *circuits) route(ch *ctrlChannel, m *wire.Message) error {
	rt := &routing{c: c, ch: ch, id: m.GetId(), route: m.GetRoute()}
	rt.deadline = time.Now().Add(remaining(rt.route.GetDeadlineMs(), routeTime))
	rt.refusal = rt.read()
	c.postRoute(rt)
	return nil
}

// remaining gives a time in ms as a duration, within bounds.
func remaining(ms uint32, unset time.Duration) time.Duration {
	if ms == 0 {
		return unset
	}
	return min(time.Duration(ms)*time.Millisecond, longest)
}

// read says what the Route's two ends are.
func (rt *routing) read() *ginnel.DialError {
	route, self := rt.route, string(rt.c.r.id)
	routers, links, index := route.GetRouters(), route.GetLinks(), int(route.GetIndex())
	last := index == len(routers)-1
	switch {
	case route.GetCircuit() == "" || len(route.GetCircuit()) > 64:
		return rt.wrong("names no circuit")
	case len(routers) == 0 || len(routers) > maxPath || len(links) != len(routers)-1 || index >= len(routers):
		return rt.wrong("has no such path")
	case routers[index] != self:
		return rt.wrong("is for router " + routers[index])
	case (index == 0) != (route.GetIngress() != nil) || last != (route.GetEgress() != nil):
		return rt.wrong("has its ends at the wrong routers")
	}
	if route.GetIngress() != nil || last {
		rt.role = &rowRole{client: route.GetIngress() != nil, host: last, path: routers, links: links}
	}
	if err := rt.readUp(routers, links, index); err != nil {
		return err
	}
	if last {
		return rt.readEgress()
	}
	if err := rt.linked(links[index], routers[index+1]); err != nil {
		return err
	}
	rt.ends[1] = label.End{
		Kind: label.Link, Peer: links[index], Arrive: label.Label(route.GetDownIn()), Send: label.Label(route.GetDownOut()),
	}
	return nil
}

// readUp says what is towards the client.
func (rt *routing) readUp(routers, links []string, index int) *ginnel.DialError {
	if index > 0 {
		rt.ends[0] = label.End{
			Kind: label.Link, Peer: links[index-1],
			Arrive: label.Label(rt.route.GetUpIn()), Send: label.Label(rt.route.GetUpOut()),
		}
		return rt.linked(links[index-1], routers[index-1])
	}
	in := rt.route.GetIngress()
	ec := rt.c.r.edge.asker(rt.ch.number, in.GetRequest())
	if ec == nil {
		return ginnel.Errorf(ginnel.Cancelled, "router %s: the client no longer waits", rt.c.r.id)
	}
	rt.ends[0] = label.End{Kind: label.Edge, Peer: ec.peer}
	return rt.know(in.GetTicket())
}

// know reads a ticket that the controller, which signs them, has sent. Who takes
// a circuit because of it verifies it.
func (rt *routing) know(ticket *wire.Signed) *ginnel.DialError {
	facts := new(wire.Ticket)
	if err := proto.Unmarshal(ticket.GetPayload(), facts); err != nil || facts.GetCircuit() != rt.route.GetCircuit() {
		return rt.wrong("comes without the circuit's ticket")
	}
	rt.role.ticket, rt.role.facts = ticket, facts
	return nil
}

// linked reports whether a link leads to a router now.
func (rt *routing) linked(id, peer string) *ginnel.DialError {
	l := rt.c.r.links.get(ginnel.LinkID(id))
	switch {
	case l == nil:
		return ginnel.Errorf(ginnel.RouterErrInvalidLinkDestination, "router %s: link %s is not up", rt.c.r.id, id)
	case string(l.peer) != peer:
		return ginnel.Errorf(ginnel.RouterErrInvalidLinkDestination, "router %s: link %s leads to %s, not to %s", rt.c.r.id, id, l.peer, peer)
	}
	return nil
}

func (rt *routing) wrong(what string) *ginnel.DialError {
	return ginnel.Errorf(ginnel.RouterErrGeneric, "router %s: the route %s", rt.c.r.id, what)
}

// readEgress says where the circuit ends.
func (rt *routing) readEgress() *ginnel.DialError {
	e := rt.route.GetEgress()
	if err := rt.know(e.GetTicket()); err != nil {
		return err
	}
	if e.GetResume() {
		return rt.readResumed()
	}
	t := rt.c.terms.get(ginnel.TerminatorID(e.GetTerminator()))
	switch {
	case t == nil:
		return ginnel.Errorf(ginnel.RouterErrInvalidTerminator, "router %s has no terminator %s", rt.c.r.id, e.GetTerminator())
	case t.conn != nil:
		rt.term, rt.sdk = t, t.conn
		rt.ends[1] = label.End{Kind: label.Edge, Peer: t.conn.peer}
		return nil
	case protocolOf(t.address) == "":
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "router %s cannot host %s of terminator %s", rt.c.r.id, t.address, t.id)
	}
	if err := rt.c.r.allowed.check(t.address); err != nil {
		return ginnel.Errorf(err.Code, "router %s: terminator %s: %s", rt.c.r.id, t.id, err.Message)
	}
	rt.term = t
	rt.host = &hosted{c: rt.c, circuit: ginnel.CircuitID(rt.route.GetCircuit()), term: t}
	rt.ends[1] = label.End{Kind: label.Local}
	return nil
}

// readResumed finds the end of a circuit that is to get a new path.
func (rt *routing) readResumed() *ginnel.DialError {
	circuit := ginnel.CircuitID(rt.route.GetCircuit())
	rt.c.mu.Lock()
	rt.host = rt.c.hosted[circuit]
	rt.c.mu.Unlock()
	if rt.host != nil {
		rt.ends[1] = label.End{Kind: label.Local}
		return nil
	}
	if host := pki.TicketPeer(rt.role.facts); host.Role == ginnel.RoleRouter { // which none but this one has ever been
		return ginnel.Errorf(ginnel.PeerReset, "router %s: the host's end of the circuit has ended here", rt.c.r.id)
	}
	peer := rt.c.endpoints.hostPeer(circuit)
	if rt.sdk = rt.c.r.edge.at(peer); rt.sdk == nil {
		return ginnel.Errorf(ginnel.PeerDetached, "router %s: the host's end of the circuit is not here", rt.c.r.id)
	}
	rt.term = rt.c.terms.get(ginnel.TerminatorID(rt.route.GetEgress().GetTerminator()))
	rt.ends[1] = label.End{Kind: label.Edge, Peer: peer}
	return nil
}

// unroute takes a row back. At an end of the circuit a code ends all of it.
func (c *circuits) unroute(_ *ctrlChannel, u *wire.Unroute) {
	if code := ginnel.Code(u.GetCode()); code != ginnel.CodeOK {
		if r := c.rowOf(u.GetCircuit(), u.GetGeneration()); r != nil {
			r.reset(time.Now(), nil, code, "the controller ended the circuit")
		}
	}
	c.post(stepped{label.Unroute{Circuit: ginnel.CircuitID(u.GetCircuit()), Generation: u.GetGeneration()}})
}
