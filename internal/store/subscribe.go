// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"slices"
	"sync"
)

// Subscription collects what changes in the store until somebody takes it.
// Changes of one record between two takes become one, so it holds at most one
// entry for each record however slow the taker is, and the final state is
// never lost. Its methods may be called from any goroutine.
type Subscription struct {
	store *Store
	kinds [kindCount]bool
	ready chan struct{}

	mu    sync.Mutex
	seq   uint64 // of the last change seen
	dirty map[rowKey]numbered
	ended bool
}

// numbered is a change with its place in the order of all.
type numbered struct {
	Change
	seq uint64
}

// Subscribe gives the newest view and a subscription to all changes after it,
// of some kinds or, if none are named, of all. The caller closes it.
func (s *Store) Subscribe(kinds ...Kind) (*View, *Subscription) {
	sub := &Subscription{store: s, ready: make(chan struct{}, 1), dirty: map[rowKey]numbered{}}
	for k := range kindGuard {
		sub.kinds[k] = len(kinds) == 0 || slices.Contains(kinds, k)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscriptions == nil {
		sub.end()
	} else {
		s.subscriptions[sub] = struct{}{}
	}
	return s.View(), sub
}

// Ready is sent to when there is something to Take, and closed when the store
// or the subscription is.
func (sub *Subscription) Ready() <-chan struct{} { return sub.ready }

// Take gives what changed since the last Take, in the order of each record's
// newest change; nil if nothing did. A record made and deleted meanwhile, or
// changed and changed back by deleting, is told by its ends only. The store's
// View is at least as new as what Take gives.
func (sub *Subscription) Take() []Change {
	sub.mu.Lock()
	dirty := sub.dirty
	sub.dirty = map[rowKey]numbered{}
	sub.mu.Unlock()
	sorted := make([]numbered, 0, len(dirty))
	for _, n := range dirty {
		sorted = append(sorted, n)
	}
	slices.SortFunc(sorted, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	var changes []Change
	for _, n := range sorted {
		changes = append(changes, n.Change)
	}
	return changes
}

// Close ends the subscription; calling it again does nothing.
func (sub *Subscription) Close() {
	sub.store.mu.Lock()
	delete(sub.store.subscriptions, sub)
	sub.store.mu.Unlock()
	sub.end()
}

// add notes changes; it never waits for the taker.
func (sub *Subscription) add(changes []Change) {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	for _, c := range changes {
		if sub.kinds[c.Kind] {
			sub.note(c)
		}
	}
	if len(sub.dirty) == 0 || sub.ended {
		return
	}
	select {
	case sub.ready <- struct{}{}:
	default:
	}
}

// note merges a change with what is known of its record. The caller holds mu.
func (sub *Subscription) note(c Change) {
	sub.seq++
	key := rowKey{c.Kind, c.ID}
	if before, ok := sub.dirty[key]; ok {
		c.Old = before.Old
	}
	if c.Old == nil && c.New == nil {
		delete(sub.dirty, key)
		return
	}
	sub.dirty[key] = numbered{Change: c, seq: sub.seq}
}

func (sub *Subscription) end() {
	sub.mu.Lock()
	defer sub.mu.Unlock()
	if !sub.ended {
		sub.ended = true
		close(sub.ready)
	}
}
