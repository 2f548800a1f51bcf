// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"
)

// signal tells one loop that there is something to do, however often it is
// fired meanwhile.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// fire never waits.
func (s signal) fire() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// pause waits for d; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
