// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
)

// socketSet is one socket for each of some addresses and ports. Its methods may be
// called from any goroutine.
type socketSet[S io.Closer] struct {
	pool  netip.Prefix // where the addresses lie
	limit int
	kind  string // what errors say they are for: " for datagrams"
	// listen opens a socket.
	listen func(at netip.AddrPort) (S, error)

	mu     sync.RWMutex
	open   map[netip.AddrPort]S // guarded by mu
	closed bool                 // guarded by mu
}

// arrange makes wanted exactly what is open, and leaves alone what is. The error
// names what is not there.
func (s *socketSet[S]) arrange(wanted []netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := make(map[netip.AddrPort]bool, len(wanted))
	for _, at := range wanted {
		want[at] = true
	}
	var gone []netip.AddrPort
	for at := range s.open {
		if !want[at] {
			gone = append(gone, at)
		}
	}
	return s.changeLocked(gone, wanted)
}

// change closes what is gone and opens what of wanted is not. The error is as that
// of arrange.
func (s *socketSet[S]) change(gone, wanted []netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changeLocked(gone, wanted)
}

func (s *socketSet[S]) changeLocked(gone, wanted []netip.AddrPort) error {
	if s.closed {
		return net.ErrClosed
	}
	for _, at := range gone {
		if socket, there := s.open[at]; there {
			_ = socket.Close()
			delete(s.open, at)
		}
	}
	var problems []error
	over := 0
	for _, at := range wanted {
		if _, there := s.open[at]; there {
			continue
		}
		switch {
		case !s.pool.Contains(at.Addr()):
			problems = append(problems, fmt.Errorf("%s is not in the range %s", at, s.pool))
		case len(s.open) >= s.limit:
			over++
		default:
			socket, err := s.listen(at)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			if s.open == nil {
				s.open = make(map[netip.AddrPort]S)
			}
			s.open[at] = socket
		}
	}
	if over > 0 {
		problems = append(problems, fmt.Errorf("%d addresses and ports%s are more than the %d that can be listened on", len(s.open)+over, s.kind, s.limit))
	}
	return errors.Join(problems...)
}

// at gives the socket of an address and port.
func (s *socketSet[S]) at(at netip.AddrPort) (socket S, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	socket, ok = s.open[at]
	return socket, ok
}

// close closes all, for good.
func (s *socketSet[S]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for at, socket := range s.open {
		_ = socket.Close()
		delete(s.open, at)
	}
}
