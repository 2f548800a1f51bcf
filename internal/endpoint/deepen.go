// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

// deep is more than half of the stack that a handshake needs, so that the stack is
// made twice as large.
const deep = 9 << 10

// Deepen makes the stack of this goroutine large enough for a TLS handshake, at
// once: a young goroutine would double it three times in the midst of one, and each
// time copy all frames that are on it. Where there is room it does nothing.
func Deepen() { _ = touch(0) }

//go:noinline
func touch(i int) byte {
	var room [deep]byte
	return room[i]
}
