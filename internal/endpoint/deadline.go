// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import "time"

// deadline is a channel that is closed when an instant has come. The stream's
// lock guards it.
type deadline struct {
	timer *time.Timer
	past  chan struct{}
	over  bool // past is closed, or its timer has fired
}

func newDeadline() deadline { return deadline{past: make(chan struct{})} }

// set moves the deadline; the zero time is none. Waiters that hold an earlier
// channel are woken by the caller.
func (d *deadline) set(t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// A timer that was stopped too late closes its own channel, never a new one.
	d.past, d.over = make(chan struct{}), false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		close(d.past)
		d.over = true
		return
	}
	past := d.past
	d.timer = time.AfterFunc(wait, func() { close(past) })
}

// passed reports whether the instant has come.
func (d *deadline) passed() bool {
	select {
	case <-d.past:
		return true
	default:
		return false
	}
}
