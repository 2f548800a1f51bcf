// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of what one router can make this controller keep. Honest routers stay
// far below.
const (
	maxLinks = 4096
	maxRows  = 1 << 17 // terminators, edge connections and ends of circuits
	maxHops  = 64
	maxID    = 256
)

// The rows of a router's soft state, verified as far as signatures go. A row
// with removed set takes the one of its key away.
type (
	softPage struct {
		links       []linkRow
		terminators []*terminatorRow
		edges       []edgeRow
		endpoints   []*endpointRow
		end         bool
	}

	// linkRow is one end's word about a link.
	linkRow struct {
		ginnel.Link
		removed bool
	}

	// terminatorRow is a terminator at its egress router, bound there by an SDK
	// or stored.
	terminatorRow struct {
		id        ginnel.TerminatorID
		bound     bool              // by a Bind, which was verified
		spec      ginnel.Terminator // of the Bind
		key       string            // that signed the Bind
		leaf      []byte            // of the key, as in the Bind
		ends      time.Time         // of the leaf, and so of the Bind
		dynamic   terminator.Dynamic
		checked   bool // its health
		unhealthy bool
		removed   bool
		at        time.Time // of the report
		*judgement
	}

	// edgeRow is an SDK's connection to an edge router.
	edgeRow struct {
		connection uint64
		identity   ginnel.IdentityID
		process    string
		key        string
		removed    bool
		at         time.Time
		*judgement
	}

	endpointKey struct {
		circuit ginnel.CircuitID
		host    bool
	}

	// endpointRow is an end of a circuit, at a router or behind its edge.
	endpointRow struct {
		endpointKey
		router     ginnel.RouterID
		generation uint32
		signed     *wire.Signed // the ticket as received
		ticket     *wire.Ticket
		attach     *wire.Signed // verified; nil: none
		sequence   uint64       // of attach
		path       []ginnel.RouterID
		links      []ginnel.LinkID
		sent       uint64
		received   uint64
		removed    bool
		code       ginnel.Code // why the circuit ended, of one that was removed
		at         time.Time
		*judgement
		// way is where the fabric lists it, at place; nil: it does not.
		way   *way
		place int
	}

	// judgement is what the judge has found about a row, which alone uses it.
	judgement struct {
		passed  bool      // nothing was wrong with it, unless it is shaken
		revoked time.Time // the last time; zero: not
		times   int       // so often
	}
)

func readLink(from ginnel.RouterID, l *wire.LinkState) (linkRow, error) {
	id := ginnel.LinkID(l.GetId())
	low, high, _, ok := id.Split()
	if !ok || low != from && high != from {
		return linkRow{}, fmt.Errorf("link %q is not one of router %s", id, from)
	}
	return linkRow{
		Link: ginnel.Link{
			ID: id, A: low, B: high, Up: l.GetUp(), Measured: l.GetMeasured(),
			RTT: max(0, ginnel.Duration(l.GetRttNs())), StaticCost: max(0, ginnel.Cost(l.GetStaticCost())),
		},
		removed: l.GetRemoved(),
	}, nil
}

// loadOf gives the load of a terminator. A router that does not say how long its
// failure cost lasts has an older version: as long as that of a new failure.
func loadOf(t *wire.TerminatorState) terminator.Load {
	left := time.Duration(t.GetFailureLeftMs()) * time.Millisecond
	if left == 0 {
		left = terminator.FailureMemory
	}
	return terminator.Load{Circuits: int(t.GetCircuits()), FailureCost: ginnel.Cost(t.GetFailureCost()), FailureLeft: left}
}

// readTerminator verifies the Bind of a terminator, unless the router has
// reported it before. Whether it is allowed is judged whenever it is used. A Bind
// is good for as long as the certificate that it was signed with; hosts sign again
// when they have renewed theirs.
func (c *Controller) readTerminator(from ginnel.RouterID, t *wire.TerminatorState) (*terminatorRow, error) {
	row := &terminatorRow{
		id:        ginnel.TerminatorID(t.GetId()),
		checked:   t.GetChecked(),
		unhealthy: t.GetUnhealthy(),
		removed:   t.GetRemoved(),
		at:        time.Now(),
		dynamic:   terminator.Reported(time.Now(), loadOf(t)),
	}
	if row.removed {
		return row, nil
	}
	if len(row.id) == 0 || len(row.id) > maxID {
		return nil, fmt.Errorf("terminator with an id of %d bytes", len(row.id))
	}
	known := c.fabric.terminator(from, row.id)
	if known != nil && known.bound && (t.GetBind() == nil || bytes.Equal(known.leaf, t.GetBind().GetLeaf())) {
		row.bound, row.spec, row.at = true, known.spec, known.at
		row.key, row.leaf, row.ends = known.key, known.leaf, known.ends
		return row, nil
	}
	if t.GetBind() == nil {
		return row, nil
	}
	var b wire.Bind
	signer, err := pki.OpenInto(t.GetBind(), wire.DomainBind, c.holder.Load().CA, now(), &b, ginnel.RoleIdentity)
	if err != nil {
		return nil, fmt.Errorf("terminator %s: %w", row.id, err)
	}
	host := ginnel.IdentityID(signer.Peer.ID)
	switch {
	case b.GetNetwork() != string(c.network):
		return nil, fmt.Errorf("terminator %s: bind is of network %q", row.id, b.GetNetwork())
	case b.GetRouter() != string(from):
		return nil, fmt.Errorf("terminator %s: bind is for router %q", row.id, b.GetRouter())
	case row.id != wire.BindTerminatorID(&b, host, t.GetBind().GetPayload()):
		return nil, fmt.Errorf("terminator %s: the bind makes another id", row.id)
	case badProtocol(b.GetProtocol()):
		return nil, fmt.Errorf("terminator %s: bind for protocol %.16q", row.id, b.GetProtocol())
	case b.GetPrecedence() > uint32(ginnel.Failed) || b.GetCost() < 0:
		return nil, fmt.Errorf("terminator %s: bind with cost %d, precedence %d", row.id, b.GetCost(), b.GetPrecedence())
	}
	row.bound, row.key, row.leaf, row.ends = true, signer.KeyHash, t.GetBind().GetLeaf(), signer.Leaf.NotAfter
	row.spec = ginnel.Terminator{
		ID: row.id, Service: ginnel.ServiceID(b.GetService()), Router: from, Host: host, Instance: b.GetInstance(),
		StaticCost: ginnel.Cost(b.GetCost()), Precedence: ginnel.Precedence(b.GetPrecedence()),
		Protocol: ginnel.Protocol(b.GetProtocol()),
	}
	return row, nil
}

func badProtocol(text string) bool {
	_, err := ginnel.ParseProtocol(text)
	return err != nil
}

func readEdge(e *wire.EdgeState) (edgeRow, error) {
	row := edgeRow{
		connection: e.GetConnection(), identity: ginnel.IdentityID(e.GetIdentity()), process: e.GetProcess(),
		key: hex.EncodeToString(e.GetKey()), removed: e.GetRemoved(), at: time.Now(),
	}
	if row.removed {
		return row, nil
	}
	if err := ginnel.CheckName(e.GetIdentity()); err != nil {
		return edgeRow{}, fmt.Errorf("edge connection %d: %w", row.connection, err)
	}
	if len(row.process) > maxID {
		return edgeRow{}, fmt.Errorf("edge connection %d: process with a name of %d bytes", row.connection, len(row.process))
	}
	return row, nil
}

// readEndpoint verifies the ticket and the attach of an end of a circuit,
// unless they are the ones reported before.
func (c *Controller) readEndpoint(from ginnel.RouterID, e *wire.EndpointState) (*endpointRow, error) {
	row := &endpointRow{
		endpointKey: endpointKey{ginnel.CircuitID(e.GetCircuit()), e.GetHost()},
		router:      from, generation: e.GetGeneration(), signed: e.GetTicket(),
		path: wire.IDs[ginnel.RouterID](e.GetPath()), links: wire.IDs[ginnel.LinkID](e.GetLinks()),
		sent: e.GetBytesSent(), received: e.GetBytesReceived(), removed: e.GetRemoved(), code: ginnel.Code(e.GetCode()), at: time.Now(),
	}
	known := c.fabric.endpoint(from, row.endpointKey)
	if row.removed && (known != nil || row.host || row.signed == nil) {
		return row, nil
	}
	// What is left of a client's end that was over before it was told is for the
	// log, as good as any.
	if len(row.path) > maxHops || len(row.links) > maxHops {
		return nil, fmt.Errorf("circuit %.64q: path of %d routers, %d links", row.circuit, len(row.path), len(row.links))
	}
	ca := c.holder.Load().CA
	if known != nil && (row.signed == nil || bytes.Equal(known.signed.GetPayload(), row.signed.GetPayload())) {
		row.signed, row.ticket, row.at = known.signed, known.ticket, known.at
	} else {
		ticket, err := pki.ReopenTicket(row.signed, ca)
		if err != nil {
			return nil, fmt.Errorf("circuit %s: %w", row.circuit, err)
		}
		row.ticket = ticket
	}
	if row.ticket.GetCircuit() != string(row.circuit) || row.ticket.GetNetwork() != string(c.network) {
		return nil, fmt.Errorf("circuit %s: ticket is of circuit %q in network %q", row.circuit, row.ticket.GetCircuit(), row.ticket.GetNetwork())
	}
	if row.removed || known != nil && (e.GetAttach() == nil || bytes.Equal(known.attach.GetPayload(), e.GetAttach().GetPayload())) {
		if known != nil {
			row.attach, row.sequence = known.attach, known.sequence
		}
		return row, nil
	}
	return row, c.readAttach(row, e.GetAttach())
}

var errAttach = errors.New("attach is for something else")

// readAttach verifies that the ticket's host has attached the circuit's end to
// the router that says so.
func (c *Controller) readAttach(row *endpointRow, signed *wire.Signed) error {
	if signed == nil {
		return nil
	}
	var a wire.Attach
	signer, err := pki.OpenInto(signed, wire.DomainAttach, c.holder.Load().CA, now(), &a, ginnel.RoleIdentity)
	if err != nil {
		return fmt.Errorf("circuit %s: %w", row.circuit, err)
	}
	if signer.Peer != pki.TicketPeer(row.ticket) || a.GetRouter() != string(row.router) || !row.host ||
		!bytes.Equal(a.GetTicket().GetPayload(), row.signed.GetPayload()) {
		return fmt.Errorf("circuit %s: %w", row.circuit, errAttach)
	}
	row.attach, row.sequence = signed, a.GetSequence()
	return nil
}
