// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport"
)

// Counts is what a router has counted since it started, for metrics.
type Counts struct {
	Links    []LinkCounts // that shall be, by id
	All      Traffic      // of all links and edge connections, those that are gone included
	Edges    int          // edge connections
	Circuits int          // rows of circuits
	Strays   uint64       // frames that no row took
}

// LinkCounts is what went over all connections of a link.
type LinkCounts struct {
	LinkStatus
	Traffic
}

// Traffic is what went over connections.
type Traffic struct {
	transport.Stats
	// Stalls is how often a circuit that was to go out there began to wait for credit.
	Stalls uint64
	// Resumes is how many circuits were taken up again by a RESUME that came there.
	Resumes uint64
}

// and gives the sum of two.
func (t Traffic) and(o Traffic) Traffic {
	t.Sent.Frames += o.Sent.Frames
	t.Sent.Bytes += o.Sent.Bytes
	t.Received.Frames += o.Received.Frames
	t.Received.Bytes += o.Received.Bytes
	t.Busy += o.Busy
	t.Stalls += o.Stalls
	t.Resumes += o.Resumes
	return t
}

// traffic gives what went over the port's connection.
func (p *port) traffic() Traffic {
	return Traffic{Stats: p.conn.Stats(), Stalls: p.stalls.Load(), Resumes: p.resumes.Load()}
}

// Counts gives what the router has counted. Nothing in it ever falls but the
// numbers of what there is now.
func (r *Router) Counts() Counts {
	c := Counts{Edges: r.edge.count(), Circuits: r.circuits.count(), Strays: r.circuits.strays.Load()}
	by, all := r.links.traffic()
	for _, s := range r.links.status() {
		c.Links = append(c.Links, LinkCounts{s, by[s.ID]})
	}
	slices.SortFunc(c.Links, func(a, b LinkCounts) int { return cmp.Compare(a.ID, b.ID) })
	c.All = all.and(r.edge.traffic())
	return c
}

// traffic gives what went over each link that shall be, and over all that ever were.
func (ls *links) traffic() (by map[ginnel.LinkID]Traffic, all Traffic) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	by, all = make(map[ginnel.LinkID]Traffic, len(ls.past)), ls.dropped
	maps.Copy(by, ls.past)
	for l := range ls.serving {
		by[l.id] = by[l.id].and(l.port.traffic())
	}
	for _, t := range by {
		all = all.and(t)
	}
	return by, all
}

// began counts a connection of a link in.
func (ls *links) began(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.serving[l] = struct{}{}
}

// endedLocked keeps what a connection of a link has counted. What is kept by name
// is bounded by the links that shall be.
func (ls *links) endedLocked(l *link) {
	delete(ls.serving, l)
	if t := l.port.traffic(); ls.targets[l.id] != nil {
		ls.past[l.id] = ls.past[l.id].and(t)
	} else {
		ls.dropped = ls.dropped.and(t)
	}
}

// forgetLocked keeps what a link has counted that shall not be any more.
func (ls *links) forgetLocked(id ginnel.LinkID) {
	ls.dropped = ls.dropped.and(ls.past[id])
	delete(ls.past, id)
}

// traffic gives what went over all edge connections.
func (e *edge) traffic() Traffic {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.past
	for _, ec := range e.byNumber {
		all = all.and(ec.port.traffic())
	}
	return all
}
