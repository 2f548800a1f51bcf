// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import "sync"

// heads asks for the newest revision on behalf of many: while one question is on
// its way the next one is shared by all who come, since an answer says nothing of
// what was written after its question. The zero value is ready.
type heads struct {
	mu     sync.Mutex
	asking bool
	later  *shared // the question that comes next; nil: nobody wants one
}

// shared is a question that several wait for.
type shared struct {
	known chan struct{} // closed when head is
	head
}

// next gives the question that is asked after now. ask asks one, and may take
// its time.
func (hs *heads) next(ask func() head) *shared {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.later == nil {
		hs.later = &shared{known: make(chan struct{})}
		if !hs.asking {
			hs.asking = true
			go hs.run(ask)
		}
	}
	return hs.later
}

// run is a goroutine that asks while somebody wants to know.
func (hs *heads) run(ask func() head) {
	for {
		hs.mu.Lock()
		h := hs.later
		hs.later, hs.asking = nil, h != nil
		hs.mu.Unlock()
		if h == nil {
			return
		}
		h.head = ask()
		close(h.known)
	}
}
