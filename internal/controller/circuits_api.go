// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// ListCircuits gives the circuits that routers report, by id.
func (cs *circuits) ListCircuits(context.Context) ([]api.Circuit, error) {
	list := []api.Circuit{}
	for _, rows := range cs.c.fabric.allEndpoints() {
		list = append(list, circuitOf(rows))
	}
	slices.SortFunc(list, func(a, b api.Circuit) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// GetCircuit gives one circuit that routers report.
func (cs *circuits) GetCircuit(_ context.Context, id string) (api.Circuit, error) {
	rows := cs.underlay.endpoints(ginnel.CircuitID(id))
	if len(rows) == 0 {
		return api.Circuit{}, noCircuit(id)
	}
	return circuitOf(rows), nil
}

// DeleteCircuit ends a circuit at the routers of its ends. It is over when they
// have heard; the error says that one could not be told.
func (cs *circuits) DeleteCircuit(_ context.Context, id string) error {
	rows := cs.underlay.endpoints(ginnel.CircuitID(id))
	if len(rows) == 0 {
		return noCircuit(id)
	}
	told := make(map[ginnel.RouterID]bool)
	var errs []error
	for _, row := range rows {
		if told[row.router] {
			continue
		}
		told[row.router] = true
		errs = append(errs, cs.revoke(row))
	}
	return errors.Join(errs...)
}

// revoke ends the circuit of a row at its router.
func (cs *circuits) revoke(row *endpointRow) error {
	ch := cs.underlay.outlet(row.router)
	if ch == nil {
		return nil // and the row is gone with its channel
	}
	err := ch.send(&wire.Message{Body: &wire.Message_Revoke{Revoke: &wire.Revoke{
		Identity: row.ticket.GetClient(), Service: row.ticket.GetService(), Circuit: string(row.circuit),
	}}})
	if err != nil {
		return fmt.Errorf("tell router %s to end circuit %s: %w", row.router, row.circuit, err)
	}
	return nil
}

func noCircuit(id string) error {
	return api.Problemf(ginnel.KindNotFound, "no router reports a circuit %q", id)
}

// allEndpoints gives the known ends of every circuit.
func (f *fabric) allEndpoints() [][]*endpointRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([][]*endpointRow, 0, len(f.circuits))
	for _, rows := range f.circuits {
		all = append(all, slices.Collect(maps.Keys(rows)))
	}
	return all
}

// circuitOf joins the ends of a circuit, of which there is at least one: the
// newest path is in use, and the client's end counts its bytes.
func circuitOf(rows []*endpointRow) api.Circuit {
	slices.SortFunc(rows, func(a, b *endpointRow) int {
		return cmp.Or(cmp.Compare(b.generation, a.generation), cmp.Compare(side(a), side(b)), cmp.Compare(b.sequence, a.sequence), cmp.Compare(a.router, b.router))
	})
	newest := rows[0]
	t := newest.ticket
	c := api.Circuit{Circuit: ginnel.Circuit{
		ID: newest.circuit, Service: ginnel.ServiceID(t.GetService()), Client: ginnel.IdentityID(t.GetClient()),
		Terminator: ginnel.TerminatorID(t.GetTerminator()), Peer: pki.TicketPeer(t),
		Generation: newest.generation, Path: newest.path, Links: newest.links, Since: time.Unix(0, t.GetIssued()),
	}}
	if at := slices.IndexFunc(rows, func(r *endpointRow) bool { return !r.host }); at >= 0 {
		c.BytesSent, c.BytesReceived = rows[at].sent, rows[at].received
	} else {
		c.BytesSent, c.BytesReceived = newest.received, newest.sent // as the host sees it
	}
	return c
}

// side puts the client's end before the host's.
func side(r *endpointRow) int {
	if r.host {
		return 1
	}
	return 0
}
