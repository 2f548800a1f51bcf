// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// gatherMax is up to what length frames are gathered in one record: for
	// longer ones the copy costs more than a record of their own.
	gatherMax = 4 << 10
	// burst is how many sealed bytes are worth a write: two full frames.
	burst = 2 * largeBuffer
)

// SendData sends a whole frame that keeps its place behind those sent through q
// before. The frame is copied when it has to wait; the caller may reuse it. The
// error is the connection's.
func (c *Conn) SendData(b *Batch, q *Queue, frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendDataLocked(b, q, frame)
}

// TryData is SendData for a circuit of which nothing waits; false, and nothing is
// sent, when the frame would have to. That may change at once.
func (c *Conn) TryData(b *Batch, frame []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		return false
	}
	_ = c.sendDataLocked(b, nil, frame) // the connection keeps the error
	return true
}

func (c *Conn) sendDataLocked(b *Batch, q *Queue, frame []byte) error {
	switch {
	case c.err != nil:
		return c.err
	case len(frame) > wire.MaxFrame:
		return badFrame(frame)
	case c.busy:
		c.bulk.push(q, frame)
		return nil
	}
	return c.putLocked(b, frame)
}

// SendFrame sends a small frame of a circuit that may overtake what waits in
// queues. Of each label and type at most one waits, the newest.
func (c *Conn) SendFrame(b *Batch, frame []byte) error {
	h, err := wire.ParseHeader(frame)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.busy:
		if !c.newest.push(h, frame) {
			c.failLocked(ErrStuck)
			return c.err
		}
		return nil
	}
	return c.putLocked(b, frame)
}

// SendControl sends m as it is, at once or in its turn. It fails at once with
// ErrQueueFull when too much waits, and ends the connection when moreover the
// peer has taken nothing for 5 s. See Request, Notify and Reply.
func (c *Conn) SendControl(m *wire.Message) error { return c.sendControl(m, maxControl) }

// sendControl is SendControl with a bound for what waits, in bytes.
func (c *Conn) sendControl(m *wire.Message, most int) error {
	buf := newBuffer(largeBuffer)
	defer buf.free()
	frame, err := wire.AppendMessage(buf.b, m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case !c.busy:
		return c.putLocked(nil, frame)
	case c.control.bytes+len(frame) > most:
		if time.Since(c.progress) > stuckAfter {
			c.failLocked(ErrStuck)
			return c.err
		}
		return ErrQueueFull
	}
	c.control.push(frame)
	return nil
}

// sendProbe sends a probe or its answer before all that waits. Too many waiting
// ones are dropped: the peer asks again.
func (c *Conn) sendProbe(b *Batch, frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
	case !c.busy:
		_ = c.putLocked(b, frame) // the connection keeps the error
	case c.probes.bytes+len(frame) <= maxProbes:
		c.probes.push(frame)
	}
}

// putLocked seals or gathers a frame while not busy, and leaves the rest to b's
// flush or, without b, flushes.
func (c *Conn) putLocked(b *Batch, frame []byte) error {
	if err := c.sealLocked(frame); err != nil {
		c.failLocked(err)
		return c.err
	}
	if b == nil || c.raw.buffered() >= burst || !b.add(c) {
		c.flushLocked()
	}
	return c.err
}

// sealLocked makes a record of a frame. Small ones share one, which is sealed
// when it is full, when a large frame comes, or by sealPlainLocked.
func (c *Conn) sealLocked(frame []byte) error {
	c.sent.Frames++
	c.sent.Bytes += uint64(len(frame))
	if len(frame) > gatherMax {
		if err := c.sealPlainLocked(); err != nil {
			return err
		}
		return c.recordLocked(frame)
	}
	if c.small != nil && len(c.small.b)+len(frame) > largeBuffer {
		if err := c.sealPlainLocked(); err != nil {
			return err
		}
	}
	if c.small == nil {
		c.small = newBuffer(largeBuffer)
	}
	c.small.b = append(c.small.b, frame...)
	return nil
}

func (c *Conn) sealPlainLocked() error {
	if c.small == nil {
		return nil
	}
	err := c.recordLocked(c.small.b)
	c.small.free()
	c.small = nil
	return err
}

// recordLocked makes a record of frames.
func (c *Conn) recordLocked(frames []byte) error {
	if c.out != nil && (c.out.Worn() || c.renew.Load()) {
		c.renew.Store(false)
		if err := c.raw.renew(c.out); err != nil {
			return err
		}
	}
	c.raw.put(c.out, frames)
	return nil
}

// flush writes what was gathered, without waiting.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && !c.busy {
		c.flushLocked()
	}
}

func (c *Conn) flushLocked() {
	err := c.sealPlainLocked()
	all := false
	if err == nil {
		all, err = c.raw.flush()
	}
	switch {
	case err != nil:
		c.failLocked(err)
	case !all:
		c.busy = true
		c.progress = time.Now()
		c.busySince = c.progress
		go c.writer()
	}
}

// write is the writer goroutine: it waits for the network in place of callers.
func (c *Conn) write() {
	for c.writeSome() {
	}
}

// writeSome writes what is sealed and then seals more; false: nothing is left,
// or the connection has ended.
func (c *Conn) writeSome() bool {
	err := c.raw.drain()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.progress = time.Now()
	if err == nil {
		err = c.fillLocked()
	}
	if err != nil {
		c.failLocked(err)
		return false
	}
	if c.raw.buffered() > 0 {
		return true
	}
	c.busy = false
	c.busyFor += c.progress.Sub(c.busySince)
	if c.drained != nil {
		close(c.drained)
		c.drained = nil
	}
	return false
}

// fillLocked seals what waits, most urgent first, up to a burst.
func (c *Conn) fillLocked() error {
	for c.raw.buffered() < burst {
		b := c.probes.pop()
		if b == nil {
			b = c.control.pop()
		}
		if b == nil {
			if frame := c.newest.pop(); frame != nil {
				if err := c.sealLocked(frame); err != nil {
					return err
				}
				continue
			}
			b = c.bulk.pop()
		}
		if b == nil {
			break
		}
		err := c.sealLocked(b.b)
		b.free()
		if err != nil {
			return err
		}
	}
	return c.sealPlainLocked()
}

// settle waits until nothing waits to be written, or the connection has ended,
// or done is closed.
func (c *Conn) settle(done <-chan struct{}) {
	c.mu.Lock()
	if c.err != nil || !c.busy {
		c.mu.Unlock()
		return
	}
	if c.drained == nil {
		c.drained = make(chan struct{})
	}
	drained := c.drained
	c.mu.Unlock()
	select {
	case <-drained:
	case <-c.done:
	case <-done:
	}
}
