// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuitsAdmin implements api.Circuits over what routers report.
type circuitsAdmin struct{ c *Controller }

// ListCircuits gives every circuit of which an end is known, by id.
func (a circuitsAdmin) ListCircuits(context.Context) ([]api.Circuit, error) {
	list := []api.Circuit{}
	for _, ends := range a.c.fabric.allCircuits() {
		list = append(list, a.show(ends))
	}
	sortBy(list, func(c api.Circuit) ginnel.CircuitID { return c.ID })
	return list, nil
}

// GetCircuit gives one circuit.
func (a circuitsAdmin) GetCircuit(_ context.Context, id string) (api.Circuit, error) {
	ends := a.c.fabric.endpoints(ginnel.CircuitID(id))
	if len(ends) == 0 {
		return api.Circuit{}, api.Problemf(ginnel.KindNotFound, "circuit %s: not found", id)
	}
	return a.show(ends), nil
}

// show gives a circuit with what it carries.
func (a circuitsAdmin) show(ends []*endpointRow) api.Circuit {
	c := showCircuit(ends)
	a.c.fabric.addLoad(&c, ends)
	return c
}

// DeleteCircuit ends a circuit at every router that has an end of it.
func (a circuitsAdmin) DeleteCircuit(_ context.Context, id string) error {
	ends := a.c.fabric.endpoints(ginnel.CircuitID(id))
	if len(ends) == 0 {
		return api.Problemf(ginnel.KindNotFound, "circuit %s: not found", id)
	}
	for _, e := range ends {
		if ch := a.c.channels.get(e.router); ch != nil {
			a.c.judge.send(ch, &wire.Revoke{Identity: e.ticket.GetClient(), Service: e.ticket.GetService(), Circuit: id})
		}
	}
	return nil
}

// ExplainCircuit gives the set-ups of a circuit that are remembered.
func (a circuitsAdmin) ExplainCircuit(_ context.Context, id string) ([]api.Explanation, error) {
	var list []api.Explanation
	for _, f := range a.c.circuits.recent.of(ginnel.CircuitID(id)) {
		list = append(list, f.explanation())
	}
	if len(list) == 0 {
		return nil, api.Problemf(ginnel.KindNotFound, "circuit %s: none of the last %d set-ups at this controller was its", id, maxRecent)
	}
	return list, nil
}

// WatchCircuits yields dials, resumes and circuits as they end.
func (a circuitsAdmin) WatchCircuits(ctx context.Context) iter.Seq[api.CircuitEvent] {
	return a.c.circuits.watchers.watch(ctx)
}

// showCircuit gives a circuit out of its ends: the newest generation's, the
// client's before the host's.
func showCircuit(ends []*endpointRow) api.Circuit {
	best := slices.MaxFunc(ends, func(a, b *endpointRow) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(rankEnd(a), rankEnd(b)), cmp.Compare(a.router, b.router))
	})
	t := best.ticket
	shown := api.Circuit{
		Circuit: ginnel.Circuit{
			ID: best.circuit, Service: ginnel.ServiceID(t.GetService()), Client: ginnel.IdentityID(t.GetClient()),
			Terminator: ginnel.TerminatorID(t.GetTerminator()), Peer: pki.TicketPeer(t),
			Generation: best.generation, Path: best.path, Links: best.links, Since: time.Unix(0, t.GetIssued()),
			Protocol: pki.TicketProtocol(t),
		},
		BytesSent: best.sent, BytesReceived: best.received,
	}
	if best.host {
		shown.BytesSent, shown.BytesReceived = best.received, best.sent
	}
	return shown
}

func rankEnd(e *endpointRow) int {
	if e.host {
		return 0
	}
	return 1
}

// sortBy sorts by an id.
func sortBy[T any, ID ~string](list []T, id func(T) ID) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
}
