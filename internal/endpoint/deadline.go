// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import "time"

// deadline is a channel that is closed when an instant has come. It is replaced
// only once it is closed, so that who waits on it hears of every change. The
// stream's lock guards it.
type deadline struct {
	timer *time.Timer // closes past; nil: there is none for this past
	armed bool        // timer was started and not stopped
	past  chan struct{}
}

func newDeadline() deadline { return deadline{past: make(chan struct{})} }

// set moves the deadline; the zero time is none.
func (d *deadline) set(t time.Time) {
	if d.armed && !d.timer.Stop() {
		<-d.past // it is closing it, or has
	}
	d.armed = false
	wait := time.Until(t)
	switch passed := d.passed(); {
	case t.IsZero() && !passed, !t.IsZero() && wait <= 0 && passed: // as it is
	case !t.IsZero() && wait <= 0:
		close(d.past)
		d.timer = nil
	case passed:
		d.past, d.timer = make(chan struct{}), nil
	}
	if t.IsZero() || wait <= 0 {
		return
	}
	d.armed = true
	if d.timer != nil {
		d.timer.Reset(wait)
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
