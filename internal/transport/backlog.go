// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"net"
	"sync"
)

// Backlog is a net.Listener whose connections come from a Server: what an
// http.Server serves on the one port. Use Put as Protocol.Hand. Methods may be
// called from any goroutine.
type Backlog struct {
	addr  net.Addr
	conns chan *tls.Conn
	done  chan struct{}
	once  sync.Once
}

// NewBacklog gives an empty backlog that says it listens at addr.
func NewBacklog(addr net.Addr) *Backlog {
	return &Backlog{addr: addr, conns: make(chan *tls.Conn, 16), done: make(chan struct{})}
}

// Put hands c to who accepts, or closes it when too many wait.
func (b *Backlog) Put(c *tls.Conn) {
	select {
	case <-b.done:
	case b.conns <- c:
		return
	default:
	}
	_ = c.NetConn().Close()
}

// Accept gives the next connection.
func (b *Backlog) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and closes what waits.
func (b *Backlog) Close() error {
	b.once.Do(func() { close(b.done) })
	for {
		select {
		case c := <-b.conns:
			_ = c.NetConn().Close()
		default:
			return nil
		}
	}
}

// Addr gives the address.
func (b *Backlog) Addr() net.Addr { return b.addr }
