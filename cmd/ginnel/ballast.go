// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "runtime"

// ballastSize is how much a process that serves claims and never touches. A
// collection is due when the heap has doubled; beside the ballast a small heap, of
// which each new connection makes some 50 KiB of garbage, may grow by 8 MiB more
// before: under half as many collections for at most as much memory.
const ballastSize = 4 << 20

// ballast claims the memory until its answer is called. It takes address space
// only: Go gives it out as the system did, all zero.
func ballast() (release func()) {
	held := make([]byte, ballastSize)
	return func() { runtime.KeepAlive(held) }
}
