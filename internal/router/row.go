// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxSmall bounds the payload of what is not DATA.
const maxSmall = 512

// row is the passage of one generation of a circuit's path through this router.
// Frames are taken on the goroutines that read the connections of its sides, and
// nothing there waits. The table's goroutine makes it, changes its connections and
// clears it.
type row struct {
	c          *circuits
	id         label.RowID
	circuit    ginnel.CircuitID
	generation uint32
	sides      [2]*side // the client's first; nil: an endpoint of this router
	// ways[i] leads from side i to the other. Nil when a side is an endpoint of
	// this router: then that endpoint counts credit, and host is set.
	ways *[2]way
	host *hosted
	hop  *hop          // of host
	role *rowRole      // what ends of the circuit are here or behind an edge connection; nil: none
	last atomic.Int64  // ns since circuits.start: when a frame last came; 0: never
	over atomic.Bool   // the circuit was reset: frames are thrown away
	done atomic.Bool   // the table was told that both streams have passed, or that it is gone
	gone atomic.Bool   // the table was told that nothing of the circuit is left
	code atomic.Uint32 // why it was reset; 0: it was not

	// Of the table's goroutine.
	cleared bool
}

// rowRole is what a row at an end of its circuit knows about the circuit.
type rowRole struct {
	client bool // the client is behind this router
	host   bool // the host is this router, or behind it
	ticket *wire.Signed
	facts  *wire.Ticket // what the ticket says
	path   []string
	links  []string
	// Of the table's goroutine, as in row.
	ask    askKey // of the request that the row is for, at the client's end
	cancel func() // ends the set-up at the egress; nil: there is none
	// hostReset: the host has reset the circuit before its streams had ended.
	hostReset atomic.Bool
}

// take takes a frame that side i has brought. b is the reader's.
func (r *row) take(i int, p *port, b *transport.Batch, h wire.Header, frame []byte) {
	if r.over.Load() || h.Type != wire.Data && h.Length > maxSmall {
		return
	}
	now := time.Now()
	if r.last.Load() == 0 {
		r.c.post(firstFrame{r})
	}
	r.last.Store(int64(now.Sub(r.c.start)) | 1) // never 0
	if h.Type == wire.ResumeAt {
		p.resumes.Add(1)
		if i == 0 {
			r.c.post(stepped{event: label.Moved{Row: r.id}})
		}
	}
	if r.host != nil {
		r.host.frame(b, r, h, frame)
		return
	}
	w := &r.ways[i]
	switch h.Type {
	case wire.Data:
		if !w.data(now, b, p, frame, h.Length) {
			r.reset(now, b, ginnel.PeerReset, "more data than credit")
		}
	case wire.Credit:
		if limit, err := wire.ParseUint64(frame[wire.HeaderSize:]); err == nil {
			r.ways[1-i].raise(now, b, p, limit)
		}
	case wire.Start, wire.EOF:
		w.mark(now, b, p, h.Type, frame)
		if h.Type == wire.EOF && r.ways[1-i].hasEnded() {
			r.end()
		}
	case wire.ResumeAt:
		w.resume(now, b, p, frame)
	case wire.Ack, wire.KeepAlive, wire.PathMended:
		w.urgent(b, p, h.Type, frame)
	case wire.PathBroken:
		w.broken(now, b, p, frame)
	case wire.Reset:
		if code, _, err := wire.ParseReset(frame[wire.HeaderSize:]); err == nil {
			r.code.Store(uint32(code))
		}
		if r.role != nil && i == 1 && !r.done.Load() {
			r.role.hostReset.Store(true)
		}
		r.over.Store(true)
		w.broken(now, b, p, frame)
		r.ways[1-i].drop(now, b)
		r.vanish()
	case wire.Control, wire.Probe: // not of a circuit
	default: // of a later version
	}
}

// reset ends the circuit at this router and tells both ends why.
func (r *row) reset(now time.Time, b *transport.Batch, code ginnel.Code, text string) {
	if r.host != nil {
		r.host.rowReset(r, code, text)
		return
	}
	if r.over.Swap(true) {
		return
	}
	r.code.Store(uint32(code))
	for i := range r.ways {
		r.ways[i].tell(now, b, func(buf []byte, to uint32) []byte {
			return wire.AppendReset(buf, to, code, text)
		})
	}
	r.vanish()
}

// expired says why a row went that nobody has ended: nothing came over it for too
// long, or the path was broken for too long.
func (r *row) expired() ginnel.Code {
	if r.lastSeen().IsZero() || time.Since(r.lastSeen()) >= label.IdleTime {
		return ginnel.IdleTimeout
	}
	return ginnel.ResumeTimeout
}

// end tells the table, once, that both streams have passed. Their last bytes may stand
// here until a slow reader takes them, or be lost behind and come by another path.
func (r *row) end() {
	if !r.done.Swap(true) {
		r.c.post(rowDone{r})
	}
}

// vanish tells the table, once, that nothing of the circuit is left.
func (r *row) vanish() {
	r.end()
	if !r.gone.Swap(true) {
		r.c.post(stepped{event: label.Ended{Row: r.id}})
		r.c.post(rowOver{r})
	}
}

// endSetUp ends the set-up at the egress, if one is under way.
func (r *row) endSetUp() {
	if r.role != nil && r.role.cancel != nil {
		r.role.cancel()
	}
}

// control sends what the table has to say about the path to side i. A side that
// is an endpoint of this router knows already, by the change of its connection.
func (r *row) control(now time.Time, i int, what label.Control) {
	if r.host != nil {
		return
	}
	t := wire.PathMended
	if what == label.PathBroken {
		t = wire.PathBroken
	}
	w := &r.ways[1-i]
	w.tell(now, nil, func(buf []byte, to uint32) []byte {
		return wire.AppendFrame(buf, to, t, 0, nil)
	})
}

// rebind changes the connection of side i; nil: there is none for now.
func (r *row) rebind(now time.Time, i int, p *port) {
	s := r.sides[i]
	s.port.Store(nil) // nothing of the new one is taken before all is ready for it
	if r.host != nil {
		r.host.rebind(r, p)
	} else {
		r.ways[i].from(now, p)
		r.ways[1-i].into(now, p)
	}
	s.port.Store(p)
}

// close gives back what the row holds; frames that still find it are thrown away.
func (r *row) close(now time.Time) {
	r.over.Store(true)
	if r.ways == nil {
		return
	}
	for i := range r.ways {
		r.ways[i].close(now)
	}
}

// bytes gives what has passed from the client to the host and back.
func (r *row) bytes() (up, down uint64) {
	if r.host != nil {
		return r.hop.received.Load(), r.hop.sent.Load()
	}
	return r.ways[0].passed(), r.ways[1].passed()
}

// lastSeen gives when a frame last came; zero: never.
func (r *row) lastSeen() time.Time {
	if ns := r.last.Load(); ns != 0 {
		return r.c.start.Add(time.Duration(ns))
	}
	return time.Time{}
}
