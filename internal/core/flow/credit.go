// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import "math"

// InitialWindow is the credit in bytes that a hop has in each direction without
// a word; it covers one frame of MaxPayload.
const InitialWindow = 16 << 10

// Credit is the sending side of a hop: how many bytes of DATA may still go.
// The zero value is the start of a hop. Not safe for concurrent use.
type Credit struct {
	sent  uint64
	limit uint64 // highest CREDIT heard; the InitialWindow holds below it
}

// Left gives the bytes that may be sent now.
func (c *Credit) Left() int {
	left := max(c.limit, InitialWindow) - c.sent
	return int(min(left, math.MaxInt32))
}

// Spend counts n bytes as sent, or reports false and changes nothing when the
// credit does not cover them.
func (c *Credit) Spend(n int) bool {
	if n > c.Left() {
		return false
	}
	c.sent += uint64(n)
	return true
}

// Unspend takes back n bytes that were spent on frames which were thrown away before
// they were sent: who grants never hears of them.
func (c *Credit) Unspend(n int) { c.sent -= uint64(n) }

// Raise takes a CREDIT frame: the absolute count of bytes that may have been sent
// since the hop began. One that was overtaken by a newer one changes nothing.
func (c *Credit) Raise(limit uint64) { c.limit = max(c.limit, limit) }

// Restart begins to count anew: the hop's connection was replaced.
func (c *Credit) Restart() { *c = Credit{} }
