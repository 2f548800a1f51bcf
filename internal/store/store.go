// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// maxAttempts bounds how often an Update starts over. From the second attempt
// on the writers of one process take turns, so it competes with few; but each
// attempt may lose to another controller by chance, hence a bound of about a
// second rather than of a few tries.
const maxAttempts = 1000

// Options of a store. The zero value is good.
type Options struct {
	// Logger gets what the cache lives through; nil: nothing is logged.
	Logger *slog.Logger
	// Timeout bounds how long an Update waits for the cache; 0: 5 s.
	Timeout time.Duration
}

// Store is the hard state of a network: transactions on a Backend, and a cache
// of all of it. See the package comment for who may call what.
type Store struct {
	backend Backend
	log     *slog.Logger
	timeout time.Duration

	view  atomic.Pointer[View]
	asOf  atomic.Pointer[time.Time] // see Age
	turns chan struct{}             // held by an Update that starts over
	heads heads                     // of Sync

	stop context.CancelFunc
	done chan struct{} // closed when the cache's goroutine has ended

	mu            sync.Mutex // guards what follows, and every change of view
	moved         chan struct{}
	subscriptions map[*Subscription]struct{}
}

// New loads everything from a backend and starts following it; ctx bounds the
// loading only. ErrVersion, ErrUnavailable, or a record that cannot be read.
// The caller closes the store, then the backend.
func New(ctx context.Context, backend Backend, opts Options) (*Store, error) {
	s := &Store{
		backend:       backend,
		log:           opts.Logger,
		timeout:       opts.Timeout,
		turns:         make(chan struct{}, 1),
		done:          make(chan struct{}),
		moved:         make(chan struct{}),
		subscriptions: map[*Subscription]struct{}{},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.timeout <= 0 {
		s.timeout = 5 * time.Second
	}
	since := time.Now()
	view, bad, err := load(ctx, backend)
	if err = errors.Join(err, bad); err != nil {
		return nil, fmt.Errorf("load store: %w", err)
	}
	s.view.Store(view)
	s.asOf.Store(&since)
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	go s.follow(run)
	return s, nil
}

// Close ends the cache and all subscriptions. The backend stays open. It
// always gives nil; calling it again does nothing.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	return nil
}

// View gives the newest state the cache has. It never waits.
func (s *Store) View() *View { return s.view.Load() }

// Age tells how long ago the newest view was known to be the state of the
// whole cluster, as confirmed by a quorum. About 1 s at most while all is well.
func (s *Store) Age() time.Duration { return time.Since(*s.asOf.Load()) }

// WaitFor returns once View has reached a revision: the way to read what was
// just written, here or through another controller. ErrClosed, or ctx's error.
func (s *Store) WaitFor(ctx context.Context, rev Revision) error {
	for {
		s.mu.Lock()
		moved := s.moved
		s.mu.Unlock()
		if s.View().rev >= rev {
			return nil
		}
		select {
		case <-moved:
		case <-s.done:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d: %w", rev, ctx.Err())
		}
	}
}

// Sync returns once View shows all that anybody had written when it was called.
// However many call at once, the backend is asked one question at a time.
// ErrUnavailable, ErrClosed, or ctx's error: View may be behind.
func (s *Store) Sync(ctx context.Context) error {
	h := s.heads.next(func() head { return s.ask(context.WithoutCancel(ctx)) })
	select {
	case <-h.known:
	case <-ctx.Done():
		return fmt.Errorf("wait for the newest revision: %w", ctx.Err())
	}
	if h.err != nil {
		return fmt.Errorf("ask for the newest revision: %w", h.err)
	}
	return s.WaitFor(ctx, h.rev)
}

// Update runs fn and commits what it wrote, all or nothing, if nothing it read
// has changed meanwhile; otherwise it starts over, so fn may run several times
// and must do nothing but use its Tx. An error of fn is returned as it is, and
// nothing is written; one that says what is or is not there (ErrNotFound,
// ErrExists) is first confirmed against the whole cluster.
//
// When Update returns without an error the writes are durable, and View shows
// them (unless the watch is broken: see WaitFor). ErrUnavailable: they may or
// may not have happened. ErrConflict: they did not.
func (s *Store) Update(ctx context.Context, fn func(tx *Tx) error) (Revision, error) {
	for attempt := range maxAttempts {
		if attempt == 1 {
			select {
			case s.turns <- struct{}{}:
				defer func() { <-s.turns }()
			case <-ctx.Done():
				return 0, fmt.Errorf("update store: %w", ctx.Err())
			}
		}
		tx := newTx(s.View())
		rev, final, err := s.settle(ctx, tx, fn(tx))
		if final {
			return rev, err
		}
		if err := s.catchUp(ctx, rev); err != nil {
			return 0, err
		}
	}
	return 0, ErrConflict
}

// settle ends an attempt. If not final, the view must reach rev before the next.
func (s *Store) settle(ctx context.Context, tx *Tx, fnErr error) (rev Revision, final bool, err error) {
	if fnErr != nil && len(tx.reads) == 0 {
		return 0, true, fnErr
	}
	checks, writes := tx.commit()
	if fnErr != nil || len(writes) == 0 {
		head, err := s.backend.Head(ctx)
		if err != nil {
			return 0, true, fmt.Errorf("confirm reads: %w", err)
		}
		if tx.view.rev < head {
			return head, false, nil
		}
		return tx.view.rev, true, fnErr
	}
	rev, ok, err := s.backend.Commit(ctx, checks, writes)
	if err != nil {
		return 0, true, fmt.Errorf("commit: %w", err)
	}
	if !ok {
		return rev, false, nil
	}
	if err := s.catchUp(ctx, rev); err != nil {
		s.log.Warn("store cache is behind an acknowledged write", "revision", int64(rev), "err", err)
	}
	return rev, true, nil
}

// catchUp waits for the cache, at most for the store's timeout.
func (s *Store) catchUp(ctx context.Context, rev Revision) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.WaitFor(limited, rev)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: cache is behind revision %d", ErrUnavailable, rev)
	}
	return err
}
