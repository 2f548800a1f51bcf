// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "time"

// Stats is what a connection has counted since it was made.
type Stats struct {
	Sent, Received Count
	// Busy is for how long frames that were to be sent had to wait, because the
	// network did not take those before them.
	Busy time.Duration
}

// Count is of frames, of all types. Bytes are those of frames with their headers,
// without the records of TLS around them.
type Count struct{ Frames, Bytes uint64 }

// Stats may be called from any goroutine.
func (c *Conn) Stats() Stats {
	s := Stats{Received: Count{Frames: c.gotFrames.Load(), Bytes: c.gotBytes.Load()}}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Sent, s.Busy = c.sent, c.busyFor
	if c.busy && c.err == nil {
		s.Busy += time.Since(c.busySince)
	}
	return s
}

// got counts a frame that came, on the reading goroutine.
func (c *Conn) got(frame []byte) {
	c.gotFrames.Add(1)
	c.gotBytes.Add(uint64(len(frame)))
}
