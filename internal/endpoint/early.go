// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"fmt"
	"os"

	"github.com/ginnel/ginnel"
)

// errLongHello ends a handshake whose first flight has no room in a Dial.
var errLongHello = errors.New("first flight of TLS is too long for a dial")

// handshakeEnds tells how the handshake ended: its goroutine does nothing more.
func (s *Stream) handshakeEnds(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shaken = true
	switch {
	case err == nil:
		s.trusted = true
		s.stopLimit()
	case s.flow == nil:
		s.finish(fmt.Errorf("handshake: %w", err))
	default: // the limit stays: who never used the path cannot be told
		s.reset(ginnel.NotAuthenticated, "handshake failed")
	}
	s.flushLocked()
	s.land()
	close(s.handshake)
}

// overdue ends a circuit whose handshake took too long or failed unheard.
func (s *Stream) overdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(ginnel.NotAuthenticated, "handshake took too long")
	if !s.ended {
		s.finish(s.flowErr())
	}
}

// waitHandshake waits until the handshake is over, well or not, or until a
// deadline: that of writing or that of reading.
func (s *Stream) waitHandshake(by *deadline) error {
	select {
	case <-s.handshake:
		return nil
	default:
	}
	select {
	case <-s.handshake:
		return nil
	case <-s.past(by):
		return os.ErrDeadlineExceeded
	}
}

// past gives the channel that is closed when the deadline comes.
func (s *Stream) past(by *deadline) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return by.past
}

// land ends the early flight.
func (s *Stream) land() {
	if !s.flown {
		s.flown = true
		close(s.flight)
	}
}

// rewind forgets what a handshake has written before there is a path, and reports
// whether another may begin.
func (s *Stream) rewind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.earlyOut = nil
	return s.flow == nil && !s.ended
}

// takeFlight waits for the first flight of this end's TLS, which is complete
// when TLS wants to read, and gives up to limit bytes of it.
func (s *Stream) takeFlight(limit int) []byte {
	<-s.flight
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.earlyOut), limit)
	flight := s.earlyOut[:n:n]
	s.earlyOut = s.earlyOut[n:]
	return flight
}
