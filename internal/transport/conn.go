// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of what waits on a connection whose peer does not read.
const (
	maxControl = 1 << 20 // bytes of control messages
	maxOffered = 1 << 16 // the same, of which more keep out what may be lost
	maxProbes  = 4 << 10 // bytes of probes and their answers
	maxLatest  = 1 << 17 // small frames
	maxPending = 4096    // requests without an answer
	// stuckAfter is how long a peer may take nothing while the control queue is full.
	stuckAfter = 5 * time.Second
	// wedgedAfter is how long it may take nothing at all while something waits,
	// although it is heard. A burst must go out in this time: 4 KiB/s.
	wedgedAfter = 15 * time.Second
)

// Conn is an authenticated connection that carries frames. See the package
// comment for who may call what.
//
// Invariants of the writing side, all under mu:
//
//  1. Records leave in the order in which they were sealed.
//  2. Not busy: nothing waits in any queue, and callers seal and write.
//  3. Busy: exactly one writer goroutine runs; only it seals and writes.
//  4. busy goes from true to false only by the writer goroutine, in the same
//     critical section that found all queues empty. So no frame is queued that
//     nobody will write, and none is sealed before an older one.
type Conn struct {
	remote pki.Remote
	alpn   string

	raw   *raw
	start time.Time // zero of probe stamps

	// Of the reading goroutine.
	in    *record.Reader    // nil: without TLS
	read  []byte            // came and is not opened yet
	plain []byte            // of the record that was opened last: frames not taken yet
	part  []byte            // of a frame that is in several records
	half  *[halfRecord]byte // in use by in; nil: none
	batch Batch
	heard atomic.Int64 // ns since start: when bytes last came
	renew atomic.Bool  // the peer asks for new keys
	// See Stats.
	gotFrames, gotBytes atomic.Uint64

	done chan struct{}

	mu   sync.Mutex
	err  error // why it ended; nil: it has not
	busy bool
	// busySince is when busy became true, busyFor for how long it was before that.
	busySince time.Time
	busyFor   time.Duration
	sent      Count         // frames sealed, or gathered to be
	out       *record.Half  // nil: without TLS
	small     *buffer       // small frames not sealed yet; nil: none
	progress  time.Time     // busy: when the network last took something
	drained   chan struct{} // closed when busy ends; nil: nobody waits
	probes    fifo
	control   fifo
	newest    latest
	bulk      schedule
	writer    func() // c.write, made once
	ends      []func()

	pulse    pulse
	distance atomic.Int64 // ns: see Distance
	requests requests
}

// assemble makes a Conn of its parts: in and out are of the TLS over r; nil: none.
func assemble(in *record.Reader, out *record.Half, r *raw, remote pki.Remote, alpn string) *Conn {
	c := &Conn{
		remote: remote,
		alpn:   alpn,
		raw:    r,
		in:     in,
		out:    out,
		start:  time.Now(),
		done:   make(chan struct{}),
	}
	c.writer = c.write
	r.framed = true
	r.idle = c.batch.Flush
	return c
}

// Peer gives who is at the other end, by its certificate.
func (c *Conn) Peer() ginnel.Peer { return c.remote.Peer }

// Leaf gives the peer's certificate.
func (c *Conn) Leaf() *x509.Certificate { return c.remote.Leaf }

// KeyHash gives the hash of the peer's public key, as pki.KeyHash does.
func (c *Conn) KeyHash() string { return c.remote.KeyHash }

// ALPN gives the protocol of the connection.
func (c *Conn) ALPN() string { return c.alpn }

// LocalAddr gives this end's address.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr gives the other end's address.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended; nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection for the given cause, nil for ErrClosed. The first
// cause stays. What waits to be written is dropped, and requests without an
// answer get the cause at once. It does not wait.
func (c *Conn) Close(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(cause)
}

// CloseWritten waits until what was sent before has been written, or ctx ends,
// and then is Close: the peer gets the last word before the end.
func (c *Conn) CloseWritten(ctx context.Context, cause error) {
	c.settle(ctx.Done())
	c.Close(cause)
}

func (c *Conn) failLocked(cause error) {
	if c.err != nil {
		return
	}
	if cause == nil {
		cause = ErrClosed
	}
	c.err = fmt.Errorf("%s connection with %s: %w", c.alpn, c.remote.Peer, cause)
	if c.small != nil {
		c.small.free()
		c.small = nil
	}
	c.probes.clear()
	c.control.clear()
	c.newest = latest{}
	c.bulk.clear()
	c.pulse.stopLocked()
	close(c.done)
	_ = c.raw.Close() // the cause is known; nothing more to learn from it
	c.requests.fail()
	for _, f := range c.ends {
		go f()
	}
	c.ends = nil
}

// AfterClose calls f in its own goroutine when the connection has ended, at
// once when it has already.
func (c *Conn) AfterClose(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return
	}
	c.ends = append(c.ends, f)
}

// now gives the nanoseconds since the connection was made.
func (c *Conn) now() int64 { return int64(time.Since(c.start)) }

func badFrame(frame []byte) error {
	return fmt.Errorf("%w: frame of %d bytes", wire.ErrFrame, len(frame))
}
