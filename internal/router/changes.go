// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import "sync"

// changes tells any number of waiters that something changed. The zero value is
// ready. Take the channel first, then look, then wait.
type changes struct {
	mu sync.Mutex
	ch chan struct{}
}

// next gives a channel that is closed at the next change.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}

// happened wakes all that wait.
func (c *changes) happened() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch != nil {
		close(c.ch)
		c.ch = nil
	}
}
