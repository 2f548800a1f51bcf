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
	// topology, ways, gone and outlet give what is known now; none of them waits.
	topology func() *path.Snapshot
	ways     func() []hint.Way
	gone     func(ginnel.CircuitID) bool
	outlet   func(ginnel.RouterID) outlet

	plan  hint.Planner
	swept time.Time // when the plan forgot who is gone
}

func newHints(c *Controller) *hints {
	u := reported{c.fabric}
	return &hints{log: c.log, dirty: newSignal(), topology: u.topology, ways: u.clientWays, gone: u.gone, outlet: u.outlet}
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
	now := time.Now()
	if now.Sub(h.swept) >= hint.Round {
		h.swept = now
		h.plan.Forget(h.gone)
	}
	list, next := h.plan.Step(now, h.topology(), h.ways())
	for _, m := range list {
		h.tell(m)
	}
	return next
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
