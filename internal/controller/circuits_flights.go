// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"github.com/ginnel/ginnel"
)

// flights counts the set-ups that are at a terminator now. The loop of the
// circuits moves them; any goroutine may ask. The zero value has none.
type flights struct {
	mu sync.Mutex
	at map[ginnel.TerminatorID]int
}

// of gives the set-ups at a terminator.
func (f *flights) of(id ginnel.TerminatorID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at[id]
}

// move takes a set-up from a terminator to another one; empty: from or to none.
func (f *flights) move(from, to ginnel.TerminatorID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if from != "" {
		if f.at[from]--; f.at[from] == 0 {
			delete(f.at, from)
		}
	}
	if to != "" {
		if f.at == nil {
			f.at = make(map[ginnel.TerminatorID]int)
		}
		f.at[to]++
	}
}
