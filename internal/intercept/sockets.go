// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"fmt"
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
	pool  netip.Prefix
	limit int
	log   *slog.Logger

	accepted chan net.Conn // from the accept loops
	done     chan struct{} // closed by Close
	loops    sync.WaitGroup

	mu     sync.Mutex
	open   map[netip.AddrPort]net.Listener // guarded by mu
	closed bool                            // guarded by mu
}

func newSockets(pool netip.Prefix, limit int, log *slog.Logger) *sockets {
	return &sockets{
		pool: pool, limit: limit, log: log,
		accepted: make(chan net.Conn), done: make(chan struct{}),
		open: make(map[netip.AddrPort]net.Listener),
	}
}

// set closes the listeners that are not wanted and opens those that are missing.
func (s *sockets) set(wanted []netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	want := make(map[netip.AddrPort]bool, len(wanted))
	for _, at := range wanted {
		want[at] = true
	}
	for at, listener := range s.open {
		if !want[at] {
			_ = listener.Close()
			delete(s.open, at)
		}
	}
	var problems []error
	over := 0
	for _, at := range wanted {
		switch {
		case s.open[at] != nil:
		case !s.pool.Contains(at.Addr()):
			problems = append(problems, fmt.Errorf("%s is not in the range %s", at, s.pool))
		case len(s.open) >= s.limit:
			over++
		default:
			if err := s.listenLocked(at); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if over > 0 {
		problems = append(problems, fmt.Errorf("%d addresses and ports are more than the %d that can be listened on",
			len(want), s.limit))
	}
	return errors.Join(problems...)
}

// listenLocked listens on one address, not on all: a service's port is open
// to programs that ask for the service, and to nobody else.
func (s *sockets) listenLocked(at netip.AddrPort) error {
	listener, err := net.Listen("tcp4", at.String())
	if err != nil {
		return err
	}
	s.open[at] = listener
	s.loops.Go(func() { s.acceptLoop(listener) })
	return nil
}

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
		select {
		case s.accepted <- conn:
		case <-s.done:
			reset(conn)
		}
	}
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

// Close closes all listeners and waits for their loops.
func (s *sockets) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
		for at, listener := range s.open {
			_ = listener.Close()
			delete(s.open, at)
		}
	}
	s.mu.Unlock()
	s.loops.Wait()
	return nil
}

// Addr gives the range, since there is no one address.
func (s *sockets) Addr() net.Addr {
	return &net.IPNet{IP: s.pool.Addr().AsSlice(), Mask: net.CIDRMask(s.pool.Bits(), s.pool.Addr().BitLen())}
}

// reset closes conn so that the program sees a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
