// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"net"
	"sync"
)

// errWouldBlock: the socket has nothing, or takes nothing, now.
var errWouldBlock = errors.New("would block")

// errOverrun: the peer makes TLS answer faster than it takes the answers.
var errOverrun = errors.New("too many records wait")

// socket is a kernel socket that can be tried. One goroutine may read while
// another writes.
type socket interface {
	// read gives a pooled buffer with n > 0 bytes. Without wait it gives
	// errWouldBlock when nothing is there.
	read(wait bool) (in *[rawBuffer]byte, n int, err error)
	// write writes some of p, or gives errWouldBlock.
	write(p []byte) (int, error)
}

// raw lies between TLS and the network. Until framed it passes all through.
// Then it reads large pieces, calls idle just before it waits, and gathers
// what TLS seals until flush or drain.
//
// Where the network has no socket to try (pipes, shaped connections), every
// write counts as one that would block.
type raw struct {
	net.Conn
	sys    socket // nil: none
	framed bool   // set before the connection is shared
	idle   func()

	// Of the reading goroutine.
	in   *[rawBuffer]byte // nil: empty
	r, w int              // in[r:w] is unread

	// mu guards out. It is the innermost lock: TLS answers key updates on the
	// reading goroutine (RFC 8446, section 4.6.3), beside whoever writes.
	mu   sync.Mutex
	out  *[rawBuffer]byte // nil: empty
	sent int              // out[sent:size] waits
	size int
}

func newRaw(c net.Conn) *raw { return &raw{Conn: c, sys: newSocket(c), idle: func() {}} }

// Read gives TLS what has come.
func (r *raw) Read(p []byte) (int, error) {
	if !r.framed {
		return r.Conn.Read(p)
	}
	if r.in == nil {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.in[r.r:r.w])
	r.r += n
	if r.r == r.w {
		rawBuffers.Put(r.in)
		r.in = nil
	}
	return n, nil
}

func (r *raw) fill() error {
	var n int
	var err error
	if r.sys != nil {
		r.in, n, err = r.sys.read(false)
		if errors.Is(err, errWouldBlock) {
			// Not inside the wait: idle may close this very connection, and
			// closing waits for whoever holds the descriptor.
			r.idle()
			r.in, n, err = r.sys.read(true)
		}
	} else {
		r.idle()
		in := rawBuffers.Get().(*[rawBuffer]byte)
		if n, err = r.Conn.Read(in[:]); n == 0 {
			rawBuffers.Put(in)
			in = nil
		}
		r.in = in
	}
	if n > 0 {
		r.r, r.w = 0, n
		return nil
	}
	return err
}

// Write takes a sealed record of TLS.
func (r *raw) Write(p []byte) (int, error) {
	if !r.framed {
		return r.Conn.Write(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		r.out = rawBuffers.Get().(*[rawBuffer]byte)
		r.sent, r.size = 0, 0
	}
	if r.size+len(p) > rawBuffer {
		return 0, errOverrun
	}
	r.size += copy(r.out[r.size:], p)
	return len(p), nil
}

// buffered gives the bytes that wait.
func (r *raw) buffered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		return 0
	}
	return r.size - r.sent
}

// flush writes what the network takes at once and reports whether that was all.
// It must not run at the same time as drain.
func (r *raw) flush() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.out != nil {
		if r.sys == nil {
			return false, nil
		}
		n, err := r.sys.write(r.out[r.sent:r.size])
		if errors.Is(err, errWouldBlock) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		r.advanceLocked(n)
	}
	return true, nil
}

// drain writes all that waits, and waits for the network.
func (r *raw) drain() error {
	for {
		r.mu.Lock()
		if r.out == nil {
			r.mu.Unlock()
			return nil
		}
		// Others only append behind size; this piece is ours.
		p := r.out[r.sent:r.size]
		r.mu.Unlock()
		n, err := r.Conn.Write(p)
		r.mu.Lock()
		r.advanceLocked(n)
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (r *raw) advanceLocked(n int) {
	r.sent += n
	if r.sent == r.size {
		rawBuffers.Put(r.out)
		r.out = nil
	}
}
