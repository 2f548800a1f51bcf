// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// errReset is what both ends see of a connection that was cut.
var errReset = &net.OpError{Op: "read", Net: "pipe", Err: syscall.ECONNRESET}

// errGone is what a writer sees when the reader has closed.
var errGone = &net.OpError{Op: "write", Net: "pipe", Err: syscall.EPIPE}

// segment is what one write put on the way.
type segment struct {
	data []byte
	at   time.Time // when it arrives
}

// half is one direction of a connection. Segments arrive in the order in which
// they were written, whatever becomes of the latency.
type half struct {
	limit int // bytes on the way and not read, at most

	mu      sync.Mutex
	latency time.Duration
	silent  bool
	way     []segment
	size    int       // bytes in way
	last    time.Time // arrival of the last segment or of the end
	ended   bool      // the writer has closed; the end arrives at last
	gone    bool      // the reader has closed
	broken  bool
	changed chan struct{} // closed at the next change; nil: nobody waits
}

func newHalf(limit int, latency time.Duration, silent bool) *half {
	return &half{limit: limit, latency: latency, silent: silent}
}

func (h *half) changedLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

func (h *half) waitLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// with changes the half and wakes who waits.
func (h *half) with(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.changedLocked()
}

func (h *half) setLatency(d time.Duration) { h.with(func() { h.latency = d }) }
func (h *half) setSilent(on bool)          { h.with(func() { h.silent = on }) }
func (h *half) cut()                       { h.with(func() { h.broken = true; h.way = nil; h.size = 0 }) }

func (h *half) arrivalLocked() time.Time {
	at := time.Now().Add(h.latency)
	if at.Before(h.last) {
		at = h.last
	}
	h.last = at
	return at
}

// end is the writer's close.
func (h *half) end() {
	h.with(func() {
		if !h.ended {
			h.ended = true
			h.arrivalLocked()
		}
	})
}

// leave is the reader's close.
func (h *half) leave() {
	h.with(func() { h.gone = true; h.way = nil; h.size = 0 })
}

// left waits until the reader has closed, the connection was cut, or done.
func (h *half) left(done <-chan struct{}) {
	for {
		h.mu.Lock()
		over, changed := h.gone || h.broken, h.waitLocked()
		h.mu.Unlock()
		if over {
			return
		}
		select {
		case <-changed:
		case <-done:
			return
		}
	}
}

// write puts p on the way, and waits while too much is.
func (h *half) write(p []byte, past, closed <-chan struct{}) (int, error) {
	n := 0
	for {
		h.mu.Lock()
		switch {
		case isClosed(closed) || h.ended:
			h.mu.Unlock()
			return n, net.ErrClosed
		case isClosed(past):
			h.mu.Unlock()
			return n, os.ErrDeadlineExceeded
		case h.broken:
			h.mu.Unlock()
			return n, errReset
		case h.gone && !h.silent:
			h.mu.Unlock()
			return n, errGone
		}
		if m := min(len(p), h.limit-h.size); m > 0 && !h.gone {
			h.way = append(h.way, segment{data: append([]byte(nil), p[:m]...), at: h.arrivalLocked()})
			h.size += m
			n += m
			p = p[m:]
			h.changedLocked()
		}
		if len(p) == 0 {
			h.mu.Unlock()
			return n, nil
		}
		changed := h.waitLocked()
		h.mu.Unlock()
		select {
		case <-changed:
		case <-past:
		case <-closed:
		}
	}
}

// read takes what has arrived.
func (h *half) read(p []byte, past, closed <-chan struct{}) (int, error) {
	for {
		h.mu.Lock()
		n, wait, err := h.takeLocked(p, past, closed)
		if n > 0 || err != nil || len(p) == 0 {
			h.mu.Unlock()
			return n, err
		}
		changed := h.waitLocked()
		h.mu.Unlock()
		var arrives <-chan time.Time
		var timer *time.Timer
		if wait > 0 {
			timer = time.NewTimer(wait)
			arrives = timer.C
		}
		select {
		case <-changed:
		case <-arrives:
		case <-past:
		case <-closed:
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// takeLocked gives n > 0, an error, or how long until something arrives (0: not
// by time alone).
func (h *half) takeLocked(p []byte, past, closed <-chan struct{}) (n int, wait time.Duration, err error) {
	switch {
	case isClosed(closed):
		return 0, 0, net.ErrClosed
	case isClosed(past):
		return 0, 0, os.ErrDeadlineExceeded
	case h.broken:
		return 0, 0, errReset
	case h.silent:
		return 0, 0, nil
	}
	now := time.Now()
	for n < len(p) && len(h.way) > 0 && !h.way[0].at.After(now) {
		s := &h.way[0]
		m := copy(p[n:], s.data)
		n += m
		if s.data = s.data[m:]; len(s.data) == 0 {
			h.way[0] = segment{}
			h.way = h.way[1:]
		}
	}
	if n > 0 {
		h.size -= n
		h.changedLocked()
		return n, 0, nil
	}
	switch {
	case len(h.way) > 0:
		return 0, h.way[0].at.Sub(now), nil
	case h.ended && !h.last.After(now):
		return 0, 0, io.EOF
	case h.ended:
		return 0, h.last.Sub(now), nil
	default:
		return 0, 0, nil
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
