// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"net"
	"sync"
	"time"
)

// socketBuffer is how many bytes a direction holds that were not read, beside
// what is on the way for its latency.
const socketBuffer = 256 << 10

// addr is an address in memory: "HOST:PORT".
type addr string

func (addr) Network() string  { return "pipe" }
func (a addr) String() string { return string(a) }

// conn is one end of a connection.
type conn struct {
	in, out       *half
	local, remote net.Addr
	readBy        deadline
	writeBy       deadline
	once          sync.Once
	closed        chan struct{}
	onClose       func() // nil: nothing
}

// join gives the two ends of a connection whose directions are ab and ba.
func join(ab, ba *half, a, b net.Addr) (*conn, *conn) {
	return &conn{in: ba, out: ab, local: a, remote: b, closed: make(chan struct{})},
		&conn{in: ab, out: ba, local: b, remote: a, closed: make(chan struct{})}
}

// Read gives what has arrived.
func (c *conn) Read(p []byte) (int, error) { return c.in.read(p, c.readBy.passed(), c.closed) }

// Write puts p on the way.
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p, c.writeBy.passed(), c.closed) }

// CloseWrite ends this end's direction; what was written still arrives.
func (c *conn) CloseWrite() error {
	c.out.end()
	return nil
}

// Close ends both directions; what was written still arrives.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.readBy.set(time.Time{})
		c.writeBy.set(time.Time{})
		c.out.end()
		c.in.leave()
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.readBy.set(t)
	c.writeBy.set(t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.readBy.set(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	return nil
}
