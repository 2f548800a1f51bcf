// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// acceptPause is how long accepting rests after an error, mostly for want of
// file descriptors.
const acceptPause = 100 * time.Millisecond

// sockets is a set of TCP listeners that looks like one.
type sockets struct {
	pool netip.Prefix
	from sources
	bind control // prepares a listener's socket; may be nil
	log  *slog.Logger

	own      socketSet[net.Listener]
	accepted chan net.Conn // from the accept loops
	done     chan struct{} // closed by end
	end      func()
	loops    sync.WaitGroup

	mu  sync.Mutex
	far map[*farConn]struct{} // to addresses outside of pool; guarded by mu
}

func newSockets(pool netip.Prefix, limit int, from sources, log *slog.Logger) *sockets {
	s := &sockets{
		pool: pool, from: from, log: log,
		accepted: make(chan net.Conn), done: make(chan struct{}), far: make(map[*farConn]struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.done) })
	s.own.pool, s.own.limit, s.own.listen = pool, limit, s.listen
	return s
}

// listen listens on one address, not on all: a service's port is open to
// programs that ask for the service, and to nobody else.
func (s *sockets) listen(at netip.AddrPort) (net.Listener, error) {
	config := net.ListenConfig{Control: s.bind}
	listener, err := config.Listen(context.Background(), "tcp4", at.String())
	if err != nil {
		return nil, err
	}
	s.serve(listener)
	return listener, nil
}

// serve hands on the connections of listener, which somebody else closes.
func (s *sockets) serve(listener net.Listener) { s.loops.Go(func() { s.acceptLoop(listener) }) }

// acceptLoop hands on the connections of one listener until that is closed.
func (s *sockets) acceptLoop(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("connection not accepted", "front_end", listener.Addr().String(), "err", err)
			select {
			case <-s.done:
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		if conn = s.admit(conn); conn == nil {
			continue
		}
		select {
		case s.accepted <- conn:
		case <-s.done:
			reset(conn)
		}
	}
}

// admit resets a connection of a host that is not served, and keeps track of
// those that stand only while their addresses are intercepted.
func (s *sockets) admit(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	local, remote := addressOf(tcp.LocalAddr()), addressOf(tcp.RemoteAddr())
	if !s.from.serve(remote.Addr(), local.Addr()) {
		reset(conn)
		return nil
	}
	if s.pool.Contains(local.Addr()) {
		return conn
	}
	far := &farConn{tcp, s, local}
	s.mu.Lock()
	s.far[far] = struct{}{}
	s.mu.Unlock()
	return far
}

// farConn is a connection to an address outside of the range.
type farConn struct {
	*net.TCPConn
	s  *sockets
	at netip.AddrPort
}

// Close closes the connection.
func (c *farConn) Close() error {
	c.s.mu.Lock()
	delete(c.s.far, c)
	c.s.mu.Unlock()
	return c.TCPConn.Close()
}

// keep resets the connections to addresses outside of the range that wanted
// does not want.
func (s *sockets) keep(wanted func(at netip.AddrPort) bool) {
	s.mu.Lock()
	var gone []*farConn
	for c := range s.far {
		if !wanted(c.at) {
			gone = append(gone, c)
		}
	}
	s.mu.Unlock()
	for _, c := range gone {
		reset(c)
	}
}

func addressOf(address net.Addr) netip.AddrPort {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmap(tcp.AddrPort())
}

// Accept gives the next connection to any of the addresses.
func (s *sockets) Accept() (net.Conn, error) {
	select {
	case <-s.done:
		return nil, net.ErrClosed
	case conn := <-s.accepted:
		return conn, nil
	}
}

// Close closes all listeners of its own: no connection is given any more. The
// loops end with it and with the listeners that somebody else closes.
func (s *sockets) Close() error {
	s.end()
	s.own.close()
	return nil
}

// Addr gives the range, since there is no one address.
func (s *sockets) Addr() net.Addr {
	return &net.IPNet{IP: s.pool.Addr().AsSlice(), Mask: net.CIDRMask(s.pool.Bits(), s.pool.Addr().BitLen())}
}

// reset closes conn so that the program sees a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
