// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// Status is where a router stands, for those who wait for it and for people.
type Status struct {
	ID        ginnel.RouterID
	Boot      ginnel.BootID
	Enrolled  bool   // it has a certificate that is valid now
	Listening string // HOST:PORT of the listener; empty: none
	// Revision of the store that its configuration is of; 0: it has none yet.
	Revision    int64
	Controllers []ControllerStatus // connected, by id
	Links       []LinkStatus       // that shall be, by id
	Edges       int                // edge connections
	Circuits    int                // rows of circuits
}

// ControllerStatus is one ctrl channel.
type ControllerStatus struct {
	ID    ginnel.ControllerID
	Boot  ginnel.BootID
	Since time.Time
}

// LinkStatus is one link that a controller asked for.
type LinkStatus struct {
	ID       ginnel.LinkID
	Peer     ginnel.RouterID
	Up       bool
	Measured bool
	RTT      time.Duration // published; meaningful when Measured
}

// Status gives where the router stands.
func (r *Router) Status() Status {
	s := Status{
		ID: r.id, Boot: r.boot, Enrolled: r.self.ready(),
		Links: r.links.status(), Edges: r.edge.count(), Circuits: r.circuits.count(),
	}
	for _, ch := range r.ctrl.all() {
		s.Controllers = append(s.Controllers, ControllerStatus{ID: ch.controller, Boot: ch.boot, Since: ch.since})
	}
	slices.SortFunc(s.Controllers, func(a, b ControllerStatus) int { return cmp.Compare(a.ID, b.ID) })
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Listening, s.Revision = r.listening, r.config.GetRevision()
	return s
}

// Changed gives a channel that is closed when Status may have changed. Take it
// before looking, so that no change falls between.
func (r *Router) Changed() <-chan struct{} { return r.changes.next() }
