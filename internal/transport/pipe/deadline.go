// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"sync"
	"time"
)

// deadline is an instant that can be moved, and a channel that is closed while
// it has passed.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer // nil: no deadline set
	setting uint64      // counts set, so that an old timer changes nothing
	past    chan struct{}
	closed  bool // past is closed
}

// passed gives the channel; take it anew for each wait.
func (d *deadline) passed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.channelLocked()
}

func (d *deadline) channelLocked() chan struct{} {
	if d.past == nil {
		d.past = make(chan struct{})
	}
	return d.past
}

// set moves the deadline; zero takes it away.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setting++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if t.IsZero() || time.Until(t) > 0 {
		if d.closed {
			d.past, d.closed = nil, false
		}
		if t.IsZero() {
			return
		}
		setting := d.setting
		d.timer = time.AfterFunc(time.Until(t), func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.setting == setting {
				d.passLocked()
			}
		})
		return
	}
	d.passLocked()
}

func (d *deadline) passLocked() {
	if !d.closed {
		close(d.channelLocked())
		d.closed = true
	}
}
