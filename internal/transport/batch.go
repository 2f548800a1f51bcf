// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "slices"

// maxDirty bounds the connections of a Batch; more are written at once.
const maxDirty = 64

// Batch gathers what one goroutine causes to be sent, on any connections, so
// that several frames go out in one write. The zero value is ready. A nil Batch
// stands for no gathering: each frame is written at once.
type Batch struct {
	conns []*Conn
	wakes []chan struct{}
}

// add takes c for the next Flush, or reports false when there is no room.
func (b *Batch) add(c *Conn) bool {
	if slices.Contains(b.conns, c) {
		return true
	}
	if len(b.conns) == maxDirty {
		return false
	}
	b.conns = append(b.conns, c)
	return true
}

// Wake sends to c, which has room for one, at the next Flush, unless c is full
// then: who reads what this goroutine brings is woken once for all of it.
func (b *Batch) Wake(c chan struct{}) {
	switch {
	case b == nil || len(b.wakes) == maxDirty:
		ring(c)
	case slices.Contains(b.wakes, c):
	default:
		b.wakes = append(b.wakes, c)
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Flush writes what was gathered, without waiting. Run does it for the Batch it
// hands out, just before it waits for the network.
func (b *Batch) Flush() {
	for i, c := range b.conns {
		b.conns[i] = nil
		c.flush()
	}
	b.conns = b.conns[:0]
	for i, c := range b.wakes {
		b.wakes[i] = nil
		ring(c)
	}
	b.wakes = b.wakes[:0]
}
