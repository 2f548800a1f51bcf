// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"
)

const (
	probeEvery  = time.Second            // how often the cache asks for the head
	probeLimit  = 4 * time.Second        // how long one question for it may take
	stallAfter  = 3 * time.Second        // a watch this far behind the head is replaced
	retryAfter  = 100 * time.Millisecond // before a lost watch or load is tried again
	reloadAfter = 2                      // lost watches in a row, none of which reported anything
	loadPage    = 5000                   // records; etcd counts all that remain for each page
)

var (
	errEnded   = errors.New("watch ended")
	errStalled = errors.New("watch is behind")
)

// head is an answer to the question for the newest revision.
type head struct {
	rev   Revision
	asked time.Time
	err   error
}

// follow owns the cache: it is the only one that makes new views. It runs
// until ctx ends or the backend is closed.
func (s *Store) follow(ctx context.Context) {
	defer s.end()
	lost := 0
	for {
		moved, err := s.watch(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, ErrClosed) {
			s.log.Error("store backend was closed before the store", "err", err)
			return
		}
		if lost++; moved {
			lost = 1
		}
		s.log.Warn("store watch lost", "revision", int64(s.View().rev), "err", err)
		pause(ctx, retryAfter)
		if errors.Is(err, ErrCompacted) || lost >= reloadAfter {
			s.reload(ctx)
		}
	}
}

// watch applies what the backend reports until the watch is lost, and tells
// whether it reported anything.
func (s *Store) watch(ctx context.Context) (moved bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	batches := s.backend.Watch(ctx, s.View().rev)
	ticker := time.NewTicker(probeEvery)
	heads := make(chan head, 1)
	asking := false
	var ahead *head // the oldest head that the cache has yet to reach
	defer func() {
		cancel()
		ticker.Stop()
		if asking {
			<-heads
		}
		for range batches {
			// Until it is closed: nothing of this watch outlives it.
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return moved, ctx.Err()
		case batch, ok := <-batches:
			if !ok {
				return moved, errEnded
			}
			if batch.Err != nil {
				return moved, batch.Err
			}
			moved = true
			s.apply(batch)
		case <-ticker.C:
			if ahead != nil && time.Since(ahead.asked) > stallAfter {
				return moved, errStalled
			}
			if ahead == nil && !asking {
				asking = true
				go func() { heads <- s.ask(ctx) }()
			}
		case h := <-heads:
			asking = false
			if h.err == nil {
				ahead = &h
			}
		}
		if ahead != nil && s.View().rev >= ahead.rev {
			s.asOf.Store(&ahead.asked)
			ahead = nil
		}
	}
}

// ask asks for the head.
func (s *Store) ask(ctx context.Context) head {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	asked := time.Now()
	rev, err := s.backend.Head(ctx)
	return head{rev: rev, asked: asked, err: err}
}

func (s *Store) apply(batch Batch) {
	next, changes, err := s.View().with(batch.Changes, batch.Revision)
	if err != nil {
		s.log.Error("store record is unreadable and ignored", "revision", int64(batch.Revision), "err", err)
	}
	s.publish(next, changes)
}

// reload replaces the cache by a fresh load, as if what differs had been reported.
func (s *Store) reload(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		next, bad, err := load(ctx, s.backend)
		if err != nil {
			s.log.Warn("store cannot be loaded", "err", err)
			pause(ctx, retryAfter)
			continue
		}
		if bad != nil {
			s.log.Error("store record is unreadable and ignored", "revision", int64(next.rev), "err", bad)
		}
		s.publish(next, next.since(s.View()))
		s.asOf.Store(&asked)
		return
	}
}

// publish makes a view the newest and tells everybody.
func (s *Store) publish(next *View, changes []Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view.Store(next)
	for sub := range s.subscriptions {
		sub.add(changes)
	}
	close(s.moved)
	s.moved = make(chan struct{})
}

// end tells everybody that there will be no more views.
func (s *Store) end() {
	close(s.done)
	s.mu.Lock()
	subs := s.subscriptions
	s.subscriptions = nil
	s.mu.Unlock()
	for sub := range subs {
		sub.end()
	}
}

// load reads the whole backend as of one revision, page by page. bad names
// records that cannot be read; they are not in the view.
func load(ctx context.Context, backend Backend) (view *View, bad, err error) {
	for {
		view, bad, err = loadOnce(ctx, backend)
		if !errors.Is(err, ErrCompacted) || ctx.Err() != nil {
			return view, bad, err
		}
	}
}

func loadOnce(ctx context.Context, backend Backend) (view *View, bad, err error) {
	view = newView()
	after, at := "", Revision(0)
	for {
		page, err := backend.Load(ctx, after, loadPage, at)
		if err != nil {
			return nil, nil, err
		}
		at = page.Revision
		next, _, unread := view.with(page.KVs, at)
		view, bad = next, errors.Join(bad, unread)
		if !page.More || len(page.KVs) == 0 {
			// What was deleted before has left nothing to tell when.
			for kind := range kindCount {
				view.changed[kind] = at
			}
			return view, bad, nil
		}
		after = page.KVs[len(page.KVs)-1].Key
	}
}

// pause waits, or returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
