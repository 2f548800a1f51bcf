// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures parts of the product on the machine that it runs on, each
// alone and in one process: a controller with a large store, the dial loop, a
// controller that is idle, the resolver. What others see of a network as a whole is
// measured by fleet.
//
// A measurement makes what it needs, in memory or in a directory that is gone
// afterwards, asserts nothing, and shows nothing: its caller does. Each may be called
// from any goroutine, but two at a time disturb each other.
package bench

import (
	"context"
	"time"
)

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
