// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"iter"
	"sync"
)

// watcherQueue is how many events wait for a reader before it is cut off.
const watcherQueue = 1024

// watchers passes events on to those who watch. A reader that is too slow is cut
// off: nobody waits for it.
type watchers[E any] struct {
	mu    sync.Mutex
	chans map[chan E]struct{}
	ended bool
}

// publish passes on what say gives, which is not asked while nobody watches.
func (w *watchers[E]) publish(say func() E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.chans) == 0 {
		return
	}
	ev := say()
	for ch := range w.chans {
		select {
		case ch <- ev:
		default:
			delete(w.chans, ch)
			close(ch)
		}
	}
}

// watch yields events until ctx ends, the reader is too slow, or the loop ends.
func (w *watchers[E]) watch(ctx context.Context) iter.Seq[E] {
	return func(yield func(E) bool) {
		ch := make(chan E, watcherQueue)
		if !w.add(ch) {
			return
		}
		defer w.remove(ch)
		for {
			select {
			case ev, ok := <-ch:
				if !ok || !yield(ev) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

func (w *watchers[E]) add(ch chan E) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	if w.chans == nil {
		w.chans = make(map[chan E]struct{})
	}
	w.chans[ch] = struct{}{}
	return true
}

func (w *watchers[E]) remove(ch chan E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.chans, ch)
}

// end cuts all readers off.
func (w *watchers[E]) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for ch := range w.chans {
		delete(w.chans, ch)
		close(ch)
	}
}
