// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package mem

import (
	"context"
	"errors"
	"sort"

	"github.com/ginnel/ginnel/internal/store"
)

// errDropped is why a watch ended by DropWatches did.
var errDropped = errors.New("watch dropped")

// Watch implements store.Backend.
func (b *Backend) Watch(ctx context.Context, after store.Revision) <-chan store.Batch {
	out := make(chan store.Batch)
	b.mu.Lock()
	life := b.dropped
	b.mu.Unlock()
	go b.report(ctx, life, after, out)
	return out
}

// report runs one watch until it ends.
func (b *Backend) report(ctx context.Context, life uint64, after store.Revision, out chan<- store.Batch) {
	defer close(out)
	for {
		batch, moved := b.next(life, after)
		if batch.Err == nil && len(batch.Changes) == 0 {
			select {
			case <-moved:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- batch:
		case <-ctx.Done():
			return
		}
		if batch.Err != nil {
			return
		}
		after = batch.Revision
	}
}

// next gives what a watch has to report now, or what it can wait for.
func (b *Backend) next(life uint64, after store.Revision) (store.Batch, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return store.Batch{Err: store.ErrClosed}, nil
	case b.dropped != life:
		return store.Batch{Err: errDropped}, nil
	case b.frozen:
		return store.Batch{}, b.moved
	case after < b.compacted:
		return store.Batch{Err: store.ErrCompacted}, nil
	}
	from := sort.Search(len(b.log), func(i int) bool { return b.log[i].now.Revision > after })
	batch := store.Batch{Revision: b.rev}
	for _, c := range b.log[from:] {
		batch.Changes = append(batch.Changes, c.now)
	}
	return batch, b.moved
}

// SetDown takes the quorum away, or gives it back: while down, Load, Commit
// and Head fail with store.ErrUnavailable, and watches report nothing new
// because nothing can be written.
func (b *Backend) SetDown(down bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = down
}

// SetFrozen makes all watches silent, or lets them catch up: the fault that
// only an honest Age shows.
func (b *Backend) SetFrozen(frozen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.frozen = frozen
	b.wake()
}

// DropWatches ends all watches with an error.
func (b *Backend) DropWatches() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped++
	b.wake()
}

// Compact forgets all revisions before the newest; a watch that is behind it
// ends with store.ErrCompacted.
func (b *Backend) Compact() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compacted, b.log = b.rev, nil
	b.wake()
}
