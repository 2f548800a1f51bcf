// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// way is one direction of a row between two connections. It spends the credit of
// the hop that frames leave by, and grants on the hop that they come by what has
// left: so a slow reader stalls its own circuit and nobody else's.
//
// Frames that lack credit stand in line; those that the socket does not take
// stand in queue. Both together are bounded by window, since bytes count as
// consumed only when they are gone. START and EOF are taken once after each
// RESUME, and what carries no bytes is not DATA, so that nothing without credit
// can pile up.
//
// Invariant: sent <= bytes received and not consumed in window; sent > 0 means
// that a goroutine watches queue.
type way struct {
	row  *row
	back uint32 // label of frames to the side that this way comes from
	send uint32 // label of frames to the side that it leads to

	mu      sync.Mutex
	in, out *port // nil: there is no connection
	window  flow.Window
	credit  flow.Credit
	line    flow.Backlog[*held]
	queue   *transport.Queue // of out
	sent    int              // DATA bytes given to queue and not known to have left it
	started bool             // START has passed
	ended   bool             // EOF has passed
	closed  bool
	total   uint64 // DATA bytes taken
	scratch [2 * wire.HeaderSize]byte
}

// data takes n bytes of DATA from p; false: more than it had credit for.
func (w *way) data(now time.Time, b *transport.Batch, p *port, frame []byte, n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.in != p || n == 0 {
		return true
	}
	if !w.window.Receive(n) {
		return false
	}
	w.total += uint64(n)
	switch {
	case w.out == nil:
		w.consume(now, b, n)
		w.answerBroken(b)
	case w.line.Empty() && w.credit.Spend(n):
		w.forward(now, b, frame, n)
	default:
		w.hold(frame, n)
	}
	return true
}

// forward gives a frame to the connection.
func (w *way) forward(now time.Time, b *transport.Batch, frame []byte, n int) {
	wire.PutLabel(frame, w.send)
	waiting, err := w.queue.Send(b, frame)
	if err != nil { // the connection has ended, and the table hears of it
		waiting = 0
	}
	w.sent += n
	w.settle(now, b, waiting)
	if w.sent > 0 && waiting == w.sent+wire.HeaderSize {
		w.watch()
	}
}

// settle counts as consumed what has left the queue.
func (w *way) settle(now time.Time, b *transport.Batch, waiting int) {
	if gone := w.sent - min(w.sent, waiting); gone > 0 {
		w.sent -= gone
		w.consume(now, b, gone)
	}
}

// consume counts n bytes as passed on or thrown away, and grants.
func (w *way) consume(now time.Time, b *transport.Batch, n int) {
	var rtt time.Duration
	if w.in != nil {
		rtt = w.in.trip()
	}
	limit, send := w.window.Consume(now, n, rtt)
	if send && w.in != nil {
		_ = w.in.conn.SendFrame(b, wire.AppendUint64Frame(w.scratch[:0], w.back, wire.Credit, limit))
	}
}
