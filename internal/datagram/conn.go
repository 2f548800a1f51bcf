// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package datagram carries datagrams over a reliable stream: each is two bytes
// of length, big endian, and 0 to 65507 bytes. Boundaries and order are kept and
// nothing comes twice, for the stream under it neither doubles nor reorders.
// Datagrams are dropped in one place only, where they are sent, when more wait
// for the stream than QueueSize.
//
// The package does not make streams, and knows neither services nor addresses.
package datagram

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// MaxSize is the longest datagram, in bytes: what UDP over IPv4 can carry.
	MaxSize = 65507
	// QueueSize bounds what waits to be sent, in bytes with the lengths.
	QueueSize = 256 << 10

	header = 2
	// portion is how much of the queue is written at once, in bytes. Room for
	// others shows as soon as the stream has taken one.
	portion = 64 << 10
	// linger bounds how long Close waits, behind the caller's back, for the stream
	// to take what is queued.
	linger = 10 * time.Second
)

// Config says when a Conn ends by itself. The zero value: never.
type Config struct {
	// Idle is after how long without a datagram in either direction the Conn is
	// closed; 0: never.
	Idle time.Duration
	// Answered stands in place of Idle while as many datagrams have come as went,
	// and some: to questions that all have their answers. 0: as Idle.
	Answered time.Duration
}

// Stats counts the datagrams of a Conn.
type Stats struct {
	Sent     uint64 // queued for the stream
	Received uint64
	Dropped  uint64 // not sent, for want of room in the queue
}

// Conn is a net.Conn with message boundaries over a stream, one end of a flow
// of datagrams. Read gives one datagram, of which what the buffer has no room
// for is lost; Write sends one and never waits for the network. Its methods may
// be called from any goroutine.
type Conn struct {
	stream net.Conn
	cfg    Config

	mu       sync.Mutex
	queue    *buffer   // nil: nothing is queued
	taken    int       // bytes that send has taken from the queue and the stream not from it
	sending  bool      // send runs
	closed   bool      // by Close or by an idle time-out
	expired  bool      // by the latter
	err      error     // of the stream; it sends no more
	writeBy  time.Time // write deadline
	sendLoop func()    // send, made once: starting it allocates nothing

	reading sync.Mutex // held by Read and Next
	head    [header]byte
	have    int    // bytes of head that are in
	skip    int    // bytes of the stream that nobody wants
	part    []byte // of the datagram under way, read by a call that was interrupted

	sent, received, dropped atomic.Uint64
	start                   time.Time
	used                    atomic.Int64 // last datagram, in nanoseconds from start
	timer                   *time.Timer  // of Config.Idle; nil: there is none
}

// buffer is memory for datagrams.
type buffer struct{ b []byte }

// queues lends what datagrams wait in. A Conn that is idle has none of it.
var queues = sync.Pool{New: func() any { return new(buffer) }}

// New gives a Conn over stream, which it owns. A stream that has an end of one
// direction (CloseWrite) is still ended in both by Close.
func New(stream net.Conn, cfg Config) *Conn {
	c := &Conn{stream: stream, cfg: cfg, start: time.Now()}
	c.sendLoop = c.send
	if cfg.Idle > 0 {
		c.mu.Lock() // the timer may come before it is kept
		c.timer = time.AfterFunc(cfg.Idle, c.look)
		c.mu.Unlock()
	}
	return c
}

// Write queues p as one datagram. When the queue has no room it is dropped and
// counted, which is no error. Errors: EMSGSIZE for more than MaxSize bytes,
// net.ErrClosed, os.ErrDeadlineExceeded, and what ended the stream.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) > MaxSize {
		return 0, &net.OpError{Op: "write", Net: "udp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: syscall.EMSGSIZE}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, c.closedError()
	case c.err != nil:
		return 0, c.err
	case !c.writeBy.IsZero() && !time.Now().Before(c.writeBy):
		return 0, os.ErrDeadlineExceeded
	case c.queuedLocked()+header+len(p) > QueueSize:
		c.dropped.Add(1)
		return len(p), nil
	}
	if c.queue == nil {
		c.queue = queues.Get().(*buffer)
	}
	c.queue.b = append(c.queue.b, byte(len(p)>>8), byte(len(p)))
	c.queue.b = append(c.queue.b, p...)
	c.sent.Add(1)
	c.touch()
	if !c.sending {
		c.sending = true
		go c.sendLoop()
	}
	return len(p), nil
}

func (c *Conn) queuedLocked() int {
	if c.queue == nil {
		return c.taken
	}
	return c.taken + len(c.queue.b)
}

// send writes what is queued to the stream. It is the goroutine of a Conn that
// has something to send, and ends when that is gone.
func (c *Conn) send() {
	for {
		c.mu.Lock()
		if c.queue == nil || c.err != nil {
			c.sending = false
			over := c.closed || c.err != nil
			c.mu.Unlock()
			if over {
				_ = c.stream.Close() // what it has taken is delivered
			}
			return
		}
		b := c.queue
		c.queue, c.taken = nil, len(b.b)
		c.mu.Unlock()
		err := c.write(b.b)
		b.b = b.b[:0]
		queues.Put(b)
		c.mu.Lock()
		c.taken = 0
		if err != nil && c.err == nil {
			c.err = err
			c.queue = nil
		}
		c.mu.Unlock()
	}
}

func (c *Conn) write(p []byte) error {
	for len(p) > 0 {
		n, err := c.stream.Write(p[:min(portion, len(p))])
		if err != nil {
			return err
		}
		p = p[n:]
		c.mu.Lock()
		c.taken = len(p)
		c.mu.Unlock()
	}
	return nil
}

// Close ends the Conn in both directions. What is queued is still sent, for some
// seconds; it does not wait for that. What comes is thrown away.
func (c *Conn) Close() error {
	c.close(false)
	return nil
}

func (c *Conn) close(expired bool) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed, c.expired = true, expired
	if c.timer != nil {
		c.timer.Stop()
	}
	sending := c.sending
	c.mu.Unlock()
	if sending { // then send closes the stream
		_ = c.stream.SetWriteDeadline(time.Now().Add(linger))
		_ = c.stream.SetReadDeadline(time.Unix(1, 0)) // nobody reads any more
		return
	}
	_ = c.stream.Close()
}

// closedError says why the Conn is closed: by its own side, or by time. The lock
// is held.
func (c *Conn) closedError() error {
	if c.expired {
		return errIdle
	}
	return net.ErrClosed
}

// Stats gives the counts so far.
func (c *Conn) Stats() Stats {
	return Stats{Sent: c.sent.Load(), Received: c.received.Load(), Dropped: c.dropped.Load()}
}

// LocalAddr is that of the stream.
func (c *Conn) LocalAddr() net.Addr { return c.stream.LocalAddr() }

// RemoteAddr is that of the stream.
func (c *Conn) RemoteAddr() net.Addr { return c.stream.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetWriteDeadline(t)
	return c.SetReadDeadline(t)
}

// SetReadDeadline sets when Read gives up. A datagram that is half in then is
// not lost.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.closedError()
	}
	return c.stream.SetReadDeadline(t)
}

// SetWriteDeadline sets from when on Write fails; it waits for nothing.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.closedError()
	}
	c.writeBy = t
	return nil
}
