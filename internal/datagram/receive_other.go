// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package datagram

import "net"

// receive gives each datagram that comes to a connected socket to take, which
// must not keep it, until the socket or take fails.
func receive(socket net.Conn, take func(p []byte) error) error {
	return receiveHolding(socket, take)
}
