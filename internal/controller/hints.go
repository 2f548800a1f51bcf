// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/hint"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/wire"
)

// hints tells clients of better paths: whenever the topology has changed, and when
// its plan says, it asks the plan whom. The client moves by a resume.
//
// Its own goroutine owns everything in it but the signal.
type hints struct {
	log   *slog.Logger
	dirty signal
	// topology, circuits and outlet give what is known now; none of them waits.
	topology func() *path.Snapshot
	circuits func() [][]*endpointRow
	outlet   func(ginnel.RouterID) outlet

	plan hint.Planner
}

func newHints(c *Controller) *hints {
	u := reported{c.fabric}
	return &hints{log: c.log, dirty: newSignal(), topology: u.topology, circuits: u.allCircuits, outlet: u.outlet}
}

// kick says that the topology has changed.
func (h *hints) kick() { h.dirty.fire() }

// run is the goroutine of the hints.
func (h *hints) run(ctx context.Context) {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.dirty:
		case <-timer.C:
		}
		if next := h.look(); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		if !pause(ctx, hint.Every) {
			return
		}
	}
}

// look tells the clients whose time has come, and gives when to look again.
func (h *hints) look() (next time.Time) {
	var clients []hint.Circuit
	for _, ends := range h.circuits() {
		if row := clientEnd(ends); row != nil {
			clients = append(clients, hint.Circuit{
				ID: row.circuit, Generation: row.generation, Ingress: row.router, Path: path.Path{Routers: row.path, Links: row.links},
			})
		}
	}
	list, next := h.plan.Step(time.Now(), h.topology(), clients)
	for _, m := range list {
		h.tell(m)
	}
	return next
}

// clientEnd gives the client's end of a circuit, of which two routers may tell
// after the client has gone from one to the other; nil: none does.
func clientEnd(ends []*endpointRow) (newest *endpointRow) {
	for _, row := range ends {
		if !row.host && (newest == nil || row.generation > newest.generation) {
			newest = row
		}
	}
	return newest
}

// tell sends one hint, over the router to which the client is connected. Where
// that is gone the client looks for a path itself.
func (h *hints) tell(m hint.Hint) {
	ch := h.outlet(m.Ingress)
	if ch == nil {
		return
	}
	err := ch.send(&wire.Message{Body: &wire.Message_Hint{Hint: &wire.Hint{Circuit: string(m.Circuit), Generation: m.Generation}}})
	if err == nil {
		h.log.Debug("client told of a better path", "circuit_id", string(m.Circuit), "router_id", string(m.Ingress), "gain", m.Gain.String())
	}
}
