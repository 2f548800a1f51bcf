// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// hosted is a circuit whose host is this router: a stream over the rows of its
// generations, and the connection that the router made for it.
type hosted struct {
	c       *circuits
	circuit ginnel.CircuitID
	term    *term
	stream  atomic.Pointer[endpoint.Stream] // nil until the circuit is up

	mu   sync.Mutex
	conn *endpoint.Conn // with stream
	row  *row           // of the newest generation
	gone error          // why it ended before it was up; nil: it has not
}

// frame hands a frame of a row to the stream. What that sends goes out with b.
func (h *hosted) frame(b *transport.Batch, r *row, head wire.Header, frame []byte) {
	if head.Type == wire.Data {
		r.hop.received.Add(uint64(head.Length))
	}
	if s := h.stream.Load(); s != nil {
		s.FrameIn(b, r.generation, head, frame[wire.HeaderSize:])
	}
}

// up gives the circuit its path. The connections of rows do not change meanwhile.
func (h *hosted) up(host *endpoint.Host, r *row) (*endpoint.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		host.Fail(h.gone)
		return nil, h.gone
	}
	conn, err := host.Up(r.generation, r.hop)
	if err != nil {
		return nil, err
	}
	h.conn = conn
	h.stream.Store(conn.Stream())
	if r.hop.out.Load() == nil {
		conn.Stream().ConnLost(r.generation)
	}
	return conn, nil
}

// newPath gives the circuit another path, which is used once the client does.
func (h *hosted) newPath(r *row) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stream.Load()
	if s == nil {
		return ginnel.PeerDetached
	}
	if err := s.NewPath(r.generation, r.hop); err != nil {
		return err
	}
	h.row = r
	return nil
}

// rebind changes the connection of a row's other side; nil: there is none.
func (h *hosted) rebind(r *row, p *port) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.hop.bind(p)
	s := h.stream.Load()
	switch {
	case s == nil:
	case p == nil:
		s.ConnLost(r.generation)
	default:
		s.ConnBack(r.generation, r.hop)
	}
}

// lost tells that a row is gone. A circuit that nobody has used ends with it; else
// its client may come back by another path.
func (h *hosted) lost(r *row) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.hop.bind(nil)
	switch s := h.stream.Load(); {
	case s == nil:
		if h.row == r {
			h.gone = ginnel.Cancelled
		}
	case h.row == r && r.last.Load() == 0 && s.Generation() == r.generation:
		h.c.unhost(h)
		h.conn.Abort(ginnel.Cancelled, "the circuit was not used")
	default: // of another generation it changes nothing
		s.ConnLost(r.generation)
	}
}

// rowReset ends the circuit of a row, unless that goes by another path: of two that
// controllers have found for it one is taken back, before anybody has used it.
func (h *hosted) rowReset(r *row, code ginnel.Code, text string) {
	if s := h.stream.Load(); s == nil || s.Generation() == r.generation {
		h.reset(code, text)
	}
}

// reset ends the circuit; its client hears why.
func (h *hosted) reset(code ginnel.Code, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conn == nil {
		h.gone = ginnel.Errorf(code, "%s", text)
		return
	}
	h.conn.Abort(code, text)
}

// hop is the first hop of a path as the endpoint of a row in this router sees it:
// it stays when the connection under it is replaced.
type hop struct {
	label    uint32
	out      atomic.Pointer[outlet] // nil: there is no connection
	sent     atomic.Uint64          // DATA bytes
	received atomic.Uint64
}

// outlet is a connection and the hop's queue there.
type outlet struct {
	port  *port
	queue *transport.Queue
}

func (h *hop) bind(p *port) {
	if p == nil {
		h.out.Store(nil)
		return
	}
	h.out.Store(&outlet{p, p.conn.NewQueue()})
}

// Label is what frames to the next router carry.
func (h *hop) Label() uint32 { return h.label }

// Ordered sends a frame that has its place in the stream.
func (h *hop) Ordered(b endpoint.Batch, frame []byte) {
	if o := h.out.Load(); o != nil {
		if wire.Type(frame[4]) == wire.Data {
			h.sent.Add(uint64(len(frame) - wire.HeaderSize))
		}
		batch, _ := b.(*transport.Batch)
		_ = o.port.conn.SendData(batch, o.queue, frame) // who ends the connection tells
	}
}

// Urgent sends a frame that may overtake those.
func (h *hop) Urgent(b endpoint.Batch, frame []byte) {
	if o := h.out.Load(); o != nil {
		batch, _ := b.(*transport.Batch)
		_ = o.port.conn.SendFrame(batch, frame)
	}
}

// Drop throws away what Ordered has queued and not sent.
func (h *hop) Drop() int {
	if o := h.out.Load(); o != nil {
		return o.queue.Drop()
	}
	return 0
}

// Stalled counts a wait for credit.
func (h *hop) Stalled() {
	if o := h.out.Load(); o != nil {
		o.port.stalls.Add(1)
	}
}

// newBatch gathers what goes to a hop.
func newBatch() endpoint.Batch { return new(transport.Batch) }

// RTT of the connection, without queues; 0: unknown.
func (h *hop) RTT() time.Duration {
	if o := h.out.Load(); o != nil {
		return o.port.trip()
	}
	return 0
}
