// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// sendRoute sends one Route of an attempt; before the first one, all that the
// Routes share is made. What it gives back says that the Route was not sent.
func (cs *circuits) sendRoute(s *setup, a circuit.SendRoute) *circuit.SendFailed {
	if a.Position == len(a.Path.Routers)-1 {
		if router, err := cs.prepare(s, a); err != nil {
			return &circuit.SendFailed{Router: router, Generation: a.Generation, Err: err}
		}
	}
	if err := s.attempt.over[a.Position].send(s.route(a)); err != nil {
		left := a.Position + 1 // this one, and those nearer to the client that come after it
		cs.labels.unsent(s.attempt.over[:left], s.attempt.labels[:left], a.Deadline.Add(labelRest))
		return &circuit.SendFailed{Router: a.Router, Generation: a.Generation, Err: notSent(a.Router, err)}
	}
	s.routed[routeKey{a.Router, a.Generation}] = struct{}{}
	if a.Position == 0 && len(s.timing.attempts) == 1 {
		cs.meter.decided.WithLabelValues("routed").Observe(time.Since(s.timing.genuine).Seconds())
	}
	return nil
}

// notSent says why a Route did not leave.
func notSent(router ginnel.RouterID, err error) *ginnel.DialError {
	if errors.Is(err, transport.ErrQueueFull) {
		return ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "router %s takes no more messages: %v", router, err)
	}
	return ginnel.Errorf(ginnel.RouterResponseTimeout, "router %s: the route could not be sent: %v", router, err)
}

// prepare makes what the Routes of an attempt share. The error is about the
// router that it names.
func (cs *circuits) prepare(s *setup, a circuit.SendRoute) (ginnel.RouterID, *ginnel.DialError) {
	s.timing.attempts = append(s.timing.attempts, time.Now())
	if len(s.timing.attempts) == 1 {
		cs.meter.decided.WithLabelValues("chosen").Observe(time.Since(s.timing.genuine).Seconds())
	}
	// The request is known to the ingress router by the channel it came over.
	over := []outlet{s.from}
	for _, id := range a.Path.Routers[1:] {
		ch := cs.underlay.outlet(id)
		if ch == nil {
			return id, ginnel.Errorf(ginnel.RouterResponseTimeout, "router %s is no longer connected", id)
		}
		over = append(over, ch)
	}
	ticket, err := cs.ticket(s, a.Terminator)
	if err != nil {
		return a.Router, ginnel.Errorf(ginnel.RouterErrGeneric, "%v", err)
	}
	rows, short := cs.labels.take(time.Now(), over)
	if short != "" {
		return short, ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "router %s has granted no label that is left", short)
	}
	s.attempt = attempt{over: over, labels: rows, ticket: ticket}
	return "", nil
}

// ticket gives the ticket of an attempt: a circuit keeps its own for life.
func (cs *circuits) ticket(s *setup, t ginnel.Terminator) (*wire.Signed, error) {
	if s.resume != nil {
		return s.resume.ticket, nil
	}
	return s.decision.ticket(cs.c.holder.Load(), t, time.Now())
}

// route makes the Route of one router.
func (s *setup) route(a circuit.SendRoute) *wire.Message {
	row := s.attempt.labels[a.Position]
	r := &wire.Route{
		Circuit:    string(s.decision.circuit),
		Generation: a.Generation,
		Routers:    wire.Strings(a.Path.Routers),
		Links:      wire.Strings(a.Path.Links),
		Index:      uint32(a.Position),
		DeadlineMs: milliseconds(time.Until(a.Deadline)),
		UpIn:       row.upIn,
		UpOut:      row.upOut,
		DownIn:     row.downIn,
		DownOut:    row.downOut,
	}
	if a.Position == 0 {
		r.Ingress = &wire.Ingress{Request: s.request, Ticket: s.attempt.ticket}
	}
	if a.Position == len(a.Path.Routers)-1 {
		r.Egress = &wire.Egress{
			Terminator: string(a.Terminator.ID),
			Service:    string(s.decision.service),
			Ticket:     s.attempt.ticket,
			Early:      s.early,
			ConnectMs:  milliseconds(a.Connect),
			Resume:     s.resume != nil,
		}
	}
	return &wire.Message{Body: &wire.Message_Route{Route: r}}
}

// milliseconds gives a duration that remains, at least 1 ms: 0 stands for none.
func milliseconds(d time.Duration) uint32 { return uint32(max(1, d.Milliseconds())) }

// sendUnroute takes a Route back that was sent; code says why, for an endpoint.
// A router that cannot be told drops the row by itself, since nobody uses it.
func (cs *circuits) sendUnroute(s *setup, router ginnel.RouterID, generation uint32, code ginnel.Code) {
	if _, ok := s.routed[routeKey{router, generation}]; !ok {
		return
	}
	ch := cs.underlay.outlet(router)
	if ch == nil {
		return
	}
	_ = ch.send(&wire.Message{Body: &wire.Message_Unroute{Unroute: &wire.Unroute{
		Circuit: string(s.decision.circuit), Generation: generation, Code: uint32(code),
	}}})
}
