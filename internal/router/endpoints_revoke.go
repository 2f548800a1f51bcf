// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// lastWord is how long a revoked identity may take to hear why.
const lastWord = time.Second

// revoke ends what a controller says that it may no longer be: a circuit, what
// an identity dialed or hosts of a service, or all that an identity has here. To
// do it twice changes nothing.
func (c *circuits) revoke(v *wire.Revoke) {
	identity, service := v.GetIdentity(), v.GetService()
	switch {
	case v.GetCircuit() != "":
		c.revokeEnds(func(e *end) bool { return e.circuit == ginnel.CircuitID(v.GetCircuit()) })
	case identity == "":
	case service == "":
		c.revokeEnds(func(e *end) bool { return e.facts.GetClient() == identity || e.hostedBy(identity) })
		for _, ec := range c.r.edge.of(ginnel.IdentityID(identity)) {
			c.hangUp(ec)
		}
	case v.GetBind():
		for _, ec := range c.r.edge.of(ginnel.IdentityID(identity)) {
			for _, id := range c.terms.unbindAll(ec, ginnel.ServiceID(service)) {
				// Who does not hear it has lost the connection, and binds over the next one.
				_ = ec.conn.Notify(&wire.Message{Body: &wire.Message_Unbind{Unbind: &wire.Unbind{Terminator: string(id)}}})
			}
		}
		c.revokeEnds(func(e *end) bool { return e.facts.GetService() == service && e.hostedBy(identity) })
	default:
		c.revokeEnds(func(e *end) bool { return e.facts.GetService() == service && e.facts.GetClient() == identity })
	}
}

// hangUp ends an edge connection once the identity has heard why its circuits end.
func (c *circuits) hangUp(ec *edgeConn) {
	c.r.running.Go(func() {
		ctx, cancel := context.WithTimeout(c.r.ctx, lastWord)
		defer cancel()
		// Who does not hear it tries again until a controller says so.
		_ = ec.conn.Notify(&wire.Message{Body: &wire.Message_Revoke{Revoke: &wire.Revoke{Identity: string(ec.identity)}}})
		ec.conn.CloseWritten(ctx, ginnel.Revoked)
	})
}

// hostedBy reports whether an identity is the circuit's host.
func (e *end) hostedBy(identity string) bool {
	return ginnel.Role(e.facts.GetPeerRole()) == ginnel.RoleIdentity && e.facts.GetPeer() == identity
}

func (c *circuits) revokeEnds(match func(*end) bool) {
	now := time.Now()
	for _, e := range c.endpoints.matching(match) {
		c.r.log.Info("circuit revoked", "circuit_id", string(e.circuit), "identity", e.facts.GetClient(), "service", e.facts.GetService())
		switch {
		case e.hosted != nil:
			e.hosted.reset(ginnel.Revoked, "the circuit is no longer allowed")
		case e.row != nil:
			e.row.reset(now, nil, ginnel.Revoked, "the circuit is no longer allowed")
		}
	}
}
