// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/ginnel/ginnel/internal/record"
)

// errWouldBlock: the socket has nothing, or takes nothing, now.
var errWouldBlock = errors.New("would block")

// socket is a kernel socket that can be tried. One goroutine may read while
// another writes.
type socket interface {
	// read gives a pooled buffer with n > 0 bytes. Without wait it gives
	// errWouldBlock when nothing is there.
	read(wait bool) (in *[rawBuffer]byte, n int, err error)
	// write writes some of p, or gives errWouldBlock.
	write(p []byte) (int, error)
}

// raw lies between TLS and the network. Until framed it passes all through, to
// crypto/tls record by record, so that nothing is left in there. Then it reads
// large pieces, calls idle just before it waits, makes records of frames and
// gathers them until flush or drain.
//
// Where the network has no socket to try (pipes, shaped connections), every
// write counts as one that would block.
type raw struct {
	net.Conn
	sys    socket // nil: none
	framed bool   // set before the connection is shared
	idle   func()

	secrets *record.Secrets // of the handshake; nil: there is none
	client  bool            // this end dialed
	bound   record.Bound    // of the handshake

	in   *[rawBuffer]byte // of the reading goroutine: what fill gave lies in it; nil: nothing
	last int              // of the reading goroutine: how much that was

	// mu guards out. It is the innermost lock.
	mu   sync.Mutex
	out  *[rawBuffer]byte // nil: empty
	sent int              // out[sent:size] waits
	size int
}

func newRaw(c net.Conn) *raw { return &raw{Conn: c, sys: newSocket(c), idle: func() {}} }

// secured gives the TLS connection over nc; cfg is of this connection alone from
// now on. What protects its records is taken out of it by Framed.
func secured(nc net.Conn, cfg *tls.Config, client bool) *tls.Conn {
	r := newRaw(nc)
	r.secrets, r.client = new(record.Secrets), client
	cfg = cfg.Clone()
	cfg.KeyLogWriter = r.secrets // into memory, for this connection only
	if client {
		return tls.Client(r, cfg)
	}
	// A ticket would be a record of TLS under the keys that Framed goes on with from
	// their first nonce on.
	cfg.SessionTicketsDisabled = true
	if choose := cfg.GetConfigForClient; choose != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen != nil {
				chosen = chosen.Clone()
				chosen.KeyLogWriter, chosen.SessionTicketsDisabled = r.secrets, true
			}
			return chosen, err
		}
	}
	return tls.Server(r, cfg)
}

// Read gives TLS what has come, up to the end of the record that it is in.
func (r *raw) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p[:min(len(p), r.bound.Most())])
	r.bound.Passed(p[:n])
	return n, err
}

// fewBytes is up to what length a read tells that nothing more is there: who talks
// in small messages waits for the answer, which is not held up by one more look.
const fewBytes = 2 << 10

// fill gives what has come, and waits for it. It is valid until the next call.
func (r *raw) fill() ([]byte, error) {
	if r.in != nil {
		rawBuffers.Put(r.in)
		r.in = nil
	}
	var n int
	var err error
	if r.sys != nil {
		err = errWouldBlock
		if r.last == 0 || r.last > fewBytes {
			r.in, n, err = r.sys.read(false)
		}
		if errors.Is(err, errWouldBlock) {
			// Not inside the wait: idle may close this very connection, and
			// closing waits for whoever holds the descriptor.
			r.idle()
			r.in, n, err = r.sys.read(true)
		}
	} else {
		r.idle()
		r.in = rawBuffers.Get().(*[rawBuffer]byte)
		n, err = r.Conn.Read(r.in[:])
	}
	if r.last = n; n > 0 {
		return r.in[:n], nil
	}
	return nil, err
}

// put makes a record of frames that waits until flush or drain. There is room, by
// the bounds that its caller keeps (see rawBuffer).
func (r *raw) put(out *record.Half, frames []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.waiting(record.HeaderSize + len(frames) + record.TailSize)
	if out == nil {
		b = append(b, frames...)
	} else {
		b = out.Append(b, record.Application, frames)
	}
	r.size = len(b)
}

// renew tells the peer that out goes on with new keys.
func (r *raw) renew(out *record.Half) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := record.AppendUpdate(r.waiting(record.UpdateSize), out)
	r.size = len(b)
	return err
}

// waiting gives what waits, with room for n bytes behind it. The lock is held.
func (r *raw) waiting(n int) []byte {
	if r.out == nil {
		r.out = rawBuffers.Get().(*[rawBuffer]byte)
		r.sent, r.size = 0, 0
	}
	if r.size+n > rawBuffer {
		panic("BUG: more records wait than there is room for")
	}
	return r.out[:r.size]
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
		n, err := r.Write(p)
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
