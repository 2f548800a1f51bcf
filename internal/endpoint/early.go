// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"

	"github.com/ginnel/ginnel"
)

// flightEnds tells that the handshake is over: its goroutine writes no more.
func (s *Stream) flightEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.land()
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

// refuse ends a circuit whose handshake failed.
func (s *Stream) refuse(cause error) {
	s.mu.Lock()
	early := s.flow == nil
	s.mu.Unlock()
	if early {
		s.fail(fmt.Errorf("handshake: %w", cause))
		return
	}
	s.Reset(ginnel.NotAuthenticated, "handshake failed")
}
