// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"container/list"
	"net"
	"sync"

	"github.com/ginnel/ginnel/internal/splice"
)

// silent holds a proxy's clients that have not said yet where they want to go. Of more
// than most the one that has been silent longest is reset, so that those who never speak
// leave room for those who do. It may be used from any number of goroutines.
type silent struct {
	most int

	mu  sync.Mutex
	all list.List // of net.Conn, the longest silent first; guarded by mu
}

// enter adds conn. spoken must be called when it has spoken, or has ended; calling it
// twice is harmless.
func (s *silent) enter(conn net.Conn) (spoken func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all.PushBack(conn)
	if s.all.Len() > s.most {
		splice.Abort(s.all.Remove(s.all.Front()).(net.Conn))
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all.Remove(e) // of an element that is not there any more: nothing
	}
}
