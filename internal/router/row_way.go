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
// Invariant: sent <= bytes received and not consumed in window; while sent > 0 a
// goroutine watches queue.
type way struct {
	row  *row
	back uint32 // label of frames to the side that this way comes from
	send uint32 // label of frames to the side that it leads to

	mu      sync.Mutex
	in, out *port // nil: there is no connection
	window  flow.Window
	credit  flow.Credit
	line    *flow.Backlog[*held] // nil: nothing has waited yet, as in most rows
	queue   *transport.Queue     // of out; nil likewise
	sent    int32                // DATA bytes given to queue and not known to have left it
	watched bool                 // a goroutine watches queue
	started bool                 // START has passed
	ended   bool                 // EOF has passed
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
		if w.line.Empty() {
			w.out.stalls.Add(1)
		}
		w.hold(frame, n)
	}
	return true
}

// forward gives a frame to the connection.
func (w *way) forward(now time.Time, b *transport.Batch, frame []byte, n int) {
	wire.PutLabel(frame, w.send)
	waiting := w.put(b, frame)
	w.sent += int32(n)
	w.settle(now, b, waiting)
	if w.sent > 0 && !w.watched {
		w.watched = true
		q, limit := w.queue, int(w.sent/2)+1
		w.row.c.r.running.Go(func() { w.watch(q, limit) })
	}
}

// put gives a frame to the connection and tells how many bytes wait there now. A
// connection that has ended takes none; the table hears of that.
func (w *way) put(b *transport.Batch, frame []byte) (waiting int) {
	if w.queue == nil {
		if w.out.conn.TryData(b, frame) {
			return 0
		}
		w.queue = w.out.conn.NewQueue()
	}
	waiting, err := w.queue.Send(b, frame)
	if err != nil {
		return 0
	}
	return waiting
}

// watch counts what leaves a queue, until it is empty. It is a goroutine that
// runs only while the socket takes less than comes.
func (w *way) watch(q *transport.Queue, limit int) {
	for {
		err := q.Wait(w.row.c.r.ctx, limit)
		w.mu.Lock()
		if w.queue != q { // the connection was replaced
			w.mu.Unlock()
			return
		}
		if err == nil {
			w.settle(time.Now(), nil, q.Len())
			limit = int(w.sent/2) + 1
		}
		if err != nil || w.sent == 0 {
			w.watched = false
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// settle counts as consumed what has left the queue.
func (w *way) settle(now time.Time, b *transport.Batch, waiting int) {
	if gone := int(w.sent) - min(int(w.sent), waiting); gone > 0 {
		w.sent -= int32(gone)
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

// answerBroken tells the side that this way comes from that there is no way on.
func (w *way) answerBroken(b *transport.Batch) {
	if w.in != nil {
		_ = w.in.conn.SendFrame(b, wire.AppendFrame(w.scratch[:0], w.back, wire.PathBroken, 0, nil))
	}
}

// hold lets a frame stand in line until there is credit for it.
func (w *way) hold(frame []byte, n int) {
	payload := frame[wire.HeaderSize:]
	if !w.line.Extend(n, func(h *held) bool { return h.grow(payload) }) {
		w.wait(flow.Data, n, frame)
	}
}

// wait lets a frame stand last in line.
func (w *way) wait(kind flow.Kind, n int, frame []byte) {
	if w.line == nil {
		w.line = new(flow.Backlog[*held])
	}
	w.line.Put(kind, n, hold(frame), nil)
}

// raise takes a CREDIT frame that p, at the far side, has brought.
func (w *way) raise(now time.Time, b *transport.Batch, p *port, limit uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.out != p {
		return
	}
	w.credit.Raise(limit)
	for !w.line.Empty() {
		h, n, ok := w.line.Next(&w.credit)
		if !ok {
			return
		}
		w.forward(now, b, h.frame, n)
		h.free()
	}
}

// mark passes START or EOF on, in its place.
func (w *way) mark(now time.Time, b *transport.Batch, p *port, t wire.Type, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.in != p {
		return
	}
	if w.out == nil {
		w.answerBroken(b)
		return
	}
	kind, seen := flow.Start, &w.started
	if t == wire.EOF {
		kind, seen = flow.EOF, &w.ended
	}
	if *seen {
		return
	}
	*seen = true
	w.ordered(now, b, kind, frame)
}

// ordered passes a frame without bytes on behind what stands before it.
func (w *way) ordered(now time.Time, b *transport.Batch, kind flow.Kind, frame []byte) {
	if w.line.Empty() {
		w.forward(now, b, frame, 0)
		return
	}
	w.wait(kind, 0, frame)
}

// resume passes RESUME on; what stands before it is void.
func (w *way) resume(now time.Time, b *transport.Batch, p *port, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.in != p {
		return
	}
	w.void(now, b)
	if w.out == nil {
		w.answerBroken(b)
		return
	}
	w.ordered(now, b, flow.Resume, frame)
}

// urgent passes on what may overtake: at most one of a kind waits.
func (w *way) urgent(b *transport.Batch, p *port, t wire.Type, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || w.in != p:
	case w.out != nil:
		wire.PutLabel(frame, w.send)
		_ = w.out.conn.SendFrame(b, frame)
	case t == wire.KeepAlive:
		w.answerBroken(b)
	}
}

// broken passes on what makes void all that stands before it: PATH_BROKEN, RESET.
func (w *way) broken(now time.Time, b *transport.Batch, p *port, frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.in != p {
		return
	}
	w.void(now, b)
	if w.out != nil {
		wire.PutLabel(frame, w.send)
		_ = w.out.conn.SendFrame(b, frame)
	}
}

// tell sends a frame of this router's own in this direction: PATH_BROKEN,
// PATH_MENDED or RESET. What stands before it is void, or there is nothing.
func (w *way) tell(now time.Time, b *transport.Batch, frame func(buf []byte, to uint32) []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.void(now, b)
	if w.out != nil {
		_ = w.out.conn.SendFrame(b, frame(w.scratch[:0], w.send))
	}
}

// drop throws away all that waits.
func (w *way) drop(now time.Time, b *transport.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.void(now, b)
	}
}

// void throws away all that waits; it counts as consumed.
func (w *way) void(now time.Time, b *transport.Batch) {
	lost := int(w.sent)
	w.sent = 0
	w.line.Clear(func(h *held, n int) {
		lost += n
		h.free()
	})
	if w.queue != nil {
		w.credit.Unspend(w.queue.Drop())
	}
	w.started, w.ended = false, false
	if lost > 0 {
		w.consume(now, b, lost)
	}
}

// from gives the way the connection that its frames come by.
func (w *way) from(now time.Time, p *port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.in = p
	w.window.Restart(now)
}

// into gives the way the connection that its frames leave by. What waited for
// the one before is thrown away.
func (w *way) into(now time.Time, p *port) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.void(now, nil)
	w.out, w.queue, w.watched = p, nil, false
	w.credit.Restart()
}

// close gives everything back.
func (w *way) close(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.in = nil // grants nothing any more
	w.void(now, nil)
	w.closed, w.watched, w.queue = true, false, nil
	w.window.Close()
}

// hasEnded reports whether EOF has passed, and nothing began anew since.
func (w *way) hasEnded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// passed gives the DATA bytes taken.
func (w *way) passed() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}
