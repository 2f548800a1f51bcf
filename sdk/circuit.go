// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"slices"
	"sync"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuit is one end of a circuit at this process, with its paths.
type circuit struct {
	c       *Client
	id      ginnel.CircuitID
	role    flow.Role
	ticket  *wire.Signed
	decided *wire.Ticket // what ticket says
	stream  *endpoint.Stream

	mu       sync.Mutex
	rows     []*row // the path in use, and one that follows it
	seeking  bool   // a goroutine looks for what the stream wants
	resumes  uint32 // number of the last Resume that was signed
	attaches uint64 // sequence of the last Attach
	without  error  // why the last request for a path brought none; nil: it did
	over     bool
	// busy are controllers that had no answer to the last Resumes: the next one
	// goes to another, while there is one.
	busy map[ginnel.ControllerID]bool
	// pathless are edge routers from which there was no path to the other end.
	pathless map[ginnel.RouterID]bool
}

// peer gives who is at the other end.
func (x *circuit) peer() ginnel.Peer {
	if x.role == flow.Client {
		return pki.TicketPeer(x.decided)
	}
	return pki.TicketClient(x.decided)
}

// take adds the row of a path and gives the path's hop. When the connection is
// gone already the path begins broken, which settle tells the stream.
func (x *circuit) take(e *edge, generation, arrive, send uint32) (*row, *hop) {
	r := &row{circuit: x, generation: generation, arrive: arrive, send: send}
	x.mu.Lock()
	defer x.mu.Unlock()
	e.add(r)
	r.edge = e
	x.rows = append(x.rows, r)
	return r, e.hop(r)
}

// settle is called when a stream has been given the path of r by h: what came for
// the row before is handed over, and rows that neither carry the stream nor may do
// so next go. A connection that is gone by now may have told that to a stream that
// did not have the path yet.
func (x *circuit) settle(r *row, h *hop) {
	if e := r.at(); e != h.edge || e.isGone() {
		x.stream.ConnLost(r.generation)
	} else {
		e.claim(r)
	}
	current := x.stream.Generation()
	newest := max(current, r.generation) // a newer one has yet to be settled
	x.drop(func(other *row) bool { return other.generation != current && other.generation < newest })
}

// at gives the connection of the row.
func (r *row) at() *edge {
	r.circuit.mu.Lock()
	defer r.circuit.mu.Unlock()
	return r.edge
}

// drop removes rows.
func (x *circuit) drop(gone func(*row) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.rows = slices.DeleteFunc(x.rows, func(r *row) bool {
		if !gone(r) {
			return false
		}
		r.edge.remove(r)
		return true
	})
}

// connBack tells the stream that the path of r goes on over e. The router is told of
// a circuit that ended meanwhile, or it would keep it, and its other end, for long.
func (x *circuit) connBack(r *row, e *edge) {
	x.mu.Lock()
	switch {
	case x.over:
		x.mu.Unlock()
		_ = e.conn.SendFrame(nil, wire.AppendReset(nil, r.send, ginnel.PeerReset, "ended while its connection was lost"))
		return
	case !slices.Contains(x.rows, r):
		x.mu.Unlock()
		return
	}
	lost := !e.add(r)
	h := e.hop(r)
	x.mu.Unlock()
	if !lost {
		x.stream.ConnBack(r.generation, h)
	}
}

// ended is called when nothing of the stream is left.
func (x *circuit) ended() {
	x.mu.Lock()
	x.over = true
	x.mu.Unlock()
	x.drop(func(*row) bool { return true })
	x.c.circuits.remove(x)
}

// circuits are the circuits of a Client, those it dialed and those it hosts: the
// ends of a circuit that a Client has with itself are two.
type circuits struct {
	mu     sync.Mutex
	all    map[end]*circuit
	closed bool
	idle   chan struct{} // closed when there is none; nil: nobody waits
}

// end names one end of a circuit.
type end struct {
	id   ginnel.CircuitID
	role flow.Role
}

func newCircuits() *circuits { return &circuits{all: make(map[end]*circuit)} }

// add takes in a circuit; false: there is one of that name, or the Client is closed.
func (s *circuits) add(x *circuit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.all[end{x.id, x.role}] != nil {
		return false
	}
	s.all[end{x.id, x.role}] = x
	return true
}

// put is add, but in place of a circuit of that name, which is ending.
func (s *circuits) put(x *circuit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[end{x.id, x.role}] = x
	return true
}

func (s *circuits) get(id ginnel.CircuitID, role flow.Role) *circuit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[end{id, role}]
}

func (s *circuits) remove(x *circuit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[end{x.id, x.role}] != x {
		return
	}
	delete(s.all, end{x.id, x.role})
	if len(s.all) == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// hinted takes the advice that a better path exists than that of a generation.
func (s *circuits) hinted(id ginnel.CircuitID, generation uint32) {
	if x := s.get(id, flow.Client); x != nil && x.stream.Generation() == generation {
		x.better(generation)
	}
}

// abort resets all circuits; no more are taken in.
func (s *circuits) abort() {
	s.mu.Lock()
	s.closed = true
	all := make([]*circuit, 0, len(s.all))
	for _, x := range s.all {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		x.stream.Reset(ginnel.PeerReset, "client was closed")
		_ = x.stream.Close()
	}
}

// wait returns when there is no circuit, or with ctx.
func (s *circuits) wait(ctx context.Context) error {
	s.mu.Lock()
	if len(s.all) == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
