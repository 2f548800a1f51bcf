// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package mem is the in-memory twin of the store's backends, for tests and for
// networks that live in one process and are thrown away. It keeps every rule
// that store.Backend states but durability, and breaks on demand.
//
// A Backend is used from any number of goroutines and shared by any number of
// stores. It starts one goroutine for each watch, ended with the watch.
package mem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ginnel/ginnel/internal/store"
)

// Backend keeps keys in memory.
type Backend struct {
	mu        sync.Mutex
	rev       store.Revision
	kvs       map[string]store.KV
	log       []change // every change after compacted, in order
	compacted store.Revision
	moved     chan struct{} // closed and replaced at every commit and fault
	dropped   uint64        // counts DropWatches
	down      bool
	frozen    bool
	closed    bool
}

// change is a key's new state with the one before, so that old revisions can
// be read by going backwards.
type change struct{ now, before store.KV }

// New gives an empty backend.
func New() *Backend {
	return &Backend{kvs: map[string]store.KV{}, moved: make(chan struct{})}
}

// wake tells all watches to look again. The caller holds mu.
func (b *Backend) wake() {
	close(b.moved)
	b.moved = make(chan struct{})
}

// usable gives why a call cannot be answered. The caller holds mu.
func (b *Backend) usable(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case b.closed:
		return store.ErrClosed
	case b.down:
		return fmt.Errorf("%w: no quorum", store.ErrUnavailable)
	}
	return nil
}

// Load implements store.Backend.
func (b *Backend) Load(ctx context.Context, after string, limit int, at store.Revision) (store.Page, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(ctx); err != nil {
		return store.Page{}, err
	}
	if at == 0 {
		at = b.rev
	}
	if at < b.compacted {
		return store.Page{}, store.ErrCompacted
	}
	kvs := b.asOf(at)
	var keys []string
	for key := range kvs {
		if key > after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	page := store.Page{Revision: at, More: len(keys) > limit}
	for _, key := range keys[:min(limit, len(keys))] {
		page.KVs = append(page.KVs, kvs[key])
	}
	return page, nil
}

// asOf gives all keys as of a revision. The caller holds mu and does not write.
func (b *Backend) asOf(at store.Revision) map[string]store.KV {
	if at >= b.rev {
		return b.kvs
	}
	kvs := make(map[string]store.KV, len(b.kvs))
	maps.Copy(kvs, b.kvs)
	for _, c := range slices.Backward(b.log) {
		if c.now.Revision <= at {
			break
		}
		if c.before.Value == nil {
			delete(kvs, c.now.Key)
		} else {
			kvs[c.now.Key] = c.before
		}
	}
	return kvs
}

// Commit implements store.Backend.
func (b *Backend) Commit(ctx context.Context, checks []store.Check, writes []store.Write) (store.Revision, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(ctx); err != nil {
		return 0, false, err
	}
	for _, c := range checks {
		if b.kvs[c.Key].Revision != c.Revision {
			return b.rev, false, nil
		}
	}
	next := b.rev + 1
	for _, w := range writes {
		before := b.kvs[w.Key]
		if w.Value == nil && before.Value == nil {
			continue
		}
		now := store.KV{Key: w.Key, Value: slices.Clone(w.Value), Revision: next}
		b.log = append(b.log, change{now, before})
		if b.rev = next; w.Value == nil {
			delete(b.kvs, w.Key)
		} else {
			b.kvs[w.Key] = now
		}
	}
	b.wake()
	return b.rev, true, nil
}

// Head implements store.Backend.
func (b *Backend) Head(ctx context.Context) (store.Revision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.usable(ctx); err != nil {
		return 0, err
	}
	return b.rev, nil
}

// Close implements store.Backend.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.wake()
	return nil
}
