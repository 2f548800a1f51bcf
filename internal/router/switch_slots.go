// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/transport"
)

// chunkSize is how many slots are made at once: an idle router has few.
const chunkSize = 1 << 10

// slots is the array in which the data path finds the side of a row that a
// frame came by. Reading takes no lock; only the table's goroutine writes.
type slots struct {
	chunks [label.MaxSlots / chunkSize]atomic.Pointer[chunk]
}

type chunk [chunkSize]atomic.Pointer[side]

// find gives the side that frames with this label from p arrive by; nil: none.
func (t *slots) find(l uint32, p *port) *side {
	slot := label.Label(l).Slot()
	c := t.chunks[slot/chunkSize].Load()
	if c == nil {
		return nil
	}
	s := c[slot%chunkSize].Load()
	if s == nil || uint32(s.arrive) != l || s.port.Load() != p {
		return nil
	}
	return s
}

// set puts a side at the slot of its label.
func (t *slots) set(s *side) {
	slot := s.arrive.Slot()
	c := t.chunks[slot/chunkSize].Load()
	if c == nil {
		c = new(chunk)
		t.chunks[slot/chunkSize].Store(c)
	}
	c[slot%chunkSize].Store(s)
}

// clear takes a side out, unless its slot has another already.
func (t *slots) clear(s *side) {
	slot := s.arrive.Slot()
	if c := t.chunks[slot/chunkSize].Load(); c != nil {
		c[slot%chunkSize].CompareAndSwap(s, nil)
	}
}

// port is a connection that carries frames of circuits: a link's or an SDK's.
type port struct {
	number uint64 // this router's; never given twice
	conn   *transport.Conn
	// See Traffic.
	stalls, resumes atomic.Uint64
}

// trip gives the round-trip time without queues, for windows are to fill the way
// and not those; 0: unknown.
func (p *port) trip() time.Duration { return p.conn.Distance() }

// side is one side of a row that is not an endpoint of this router.
type side struct {
	row    *row
	i      int         // 0: towards the client
	arrive label.Label // of frames from this side
	send   label.Label // of frames to this side
	edge   string      // key of the edge connection; empty: it is a link
	port   atomic.Pointer[port]
}
