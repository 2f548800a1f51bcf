// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package socket tries TCP sockets of the operating system: it reads and writes
// what can be read and written at once, without waiting, and takes memory for
// what has come only when something has. It neither makes nor closes sockets.
//
// One goroutine may read a Socket while another writes it, and beside a Socket
// its net.Conn may be used as ever.
package socket

// Lender gives memory to read into.
type Lender interface {
	// Lend gives up to two pieces of memory, which are filled in their order.
	Lend() (first, second []byte)
	// Return takes it back, since nothing has come.
	Return()
}
