// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"sync"
)

// fair hands out a bounded number of slots so that one source, however many it
// asks for, leaves some to the others: nobody gets another slot while he holds
// as many as are free. A source alone so gets half of them.
//
// A fair is safe for concurrent use.
type fair struct {
	mu   sync.Mutex
	free int
	held map[netip.Addr]int // no zeroes
}

func newFair(slots int) *fair { return &fair{free: slots, held: make(map[netip.Addr]int)} }

// take gives source a slot, and false when it gets none. A slot is given back once.
func (f *fair) take(source netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[source] >= f.free {
		return false
	}
	f.free--
	f.held[source]++
	return true
}

// give takes back a slot of source.
func (f *fair) give(source netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free++
	if f.held[source]--; f.held[source] == 0 {
		delete(f.held, source)
	}
}
