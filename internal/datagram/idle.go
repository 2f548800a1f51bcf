// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package datagram

import "time"

// touch notes that a datagram came or went.
func (c *Conn) touch() {
	if c.timer == nil {
		return
	}
	c.used.Store(int64(time.Since(c.start)))
	if c.answered() {
		c.timer.Reset(c.cfg.Answered)
	}
}

// answered reports whether all questions have their answers, whichever end asks.
func (c *Conn) answered() bool {
	sent := c.sent.Load()
	return c.cfg.Answered > 0 && sent > 0 && sent == c.received.Load()
}

// look closes the Conn if it has been idle, or looks again when it would be.
func (c *Conn) look() {
	limit := c.cfg.Idle
	if c.answered() {
		limit = c.cfg.Answered
	}
	left := limit - (time.Since(c.start) - time.Duration(c.used.Load()))
	if left <= 0 {
		c.close(true)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.timer.Reset(left)
	}
}
