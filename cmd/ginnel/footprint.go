// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"runtime"
	"time"
)

const (
	// ballastSize is how much a process that serves claims and never touches. A
	// collection is due when the heap has doubled; beside the ballast a small heap, of
	// which each new connection makes some 50 KiB of garbage, may grow by 8 MiB more
	// before: under half as many collections for at most as much memory.
	ballastSize = 4 << 20
	// startTime is after what time a process has started.
	startTime = 10 * time.Second
	// settledTime is after what time it has, surely, and has let go of what that needed.
	settledTime = startTime + 5*time.Second
)

// footprint sees to the memory of a process that serves, until its answer is called:
// it claims the ballast, which takes address space only, since Go gives it out as the
// system did, all zero; and it lets go of what only the start needed.
func footprint(log *slog.Logger) (release func()) {
	held := make([]byte, ballastSize)
	started := time.AfterFunc(startTime, func() {
		if err := forgetStart(); err != nil {
			log.Debug("the pages that only the start needed stay", "err", err)
		}
	})
	return func() {
		started.Stop()
		runtime.KeepAlive(held)
	}
}
