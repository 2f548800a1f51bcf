// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import "time"

// ClockPoll is how often a loop should ask a ClockWatch.
const ClockPoll = 5 * time.Second

// clockJumpLimit is by how much two clocks may drift apart between two looks.
const clockJumpLimit = 30 * time.Second

// ClockWatch finds out that a computer slept or that its clock was set: the
// wall clock moved on, or back, and the monotonic one did not. The zero value
// is ready for use.
type ClockWatch struct {
	offset time.Duration // wall minus monotonic at the last look
	looked bool
}

// Jumped reports whether the wall clock moved against the monotonic one by more
// than 30 s since the last call. Of now only the wall clock is read; elapsed is
// monotonic, since any fixed start, such as time.Since(start). On a true answer
// send ClockJump.
func (w *ClockWatch) Jumped(now time.Time, elapsed time.Duration) bool {
	offset := time.Duration(now.UnixNano()) - elapsed
	moved := offset - w.offset
	jumped := w.looked && (moved > clockJumpLimit || moved < -clockJumpLimit)
	w.offset, w.looked = offset, true
	return jumped
}
