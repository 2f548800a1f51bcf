// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package socket

import (
	"errors"
	"net"
)

// Socket is a TCP socket that can be tried; here there is none.
type Socket struct{}

// CloseWrite ends the stream to the peer.
func CloseWrite(c *net.TCPConn) error { return c.CloseWrite() }

// Of gives nil: connections can only be waited for.
func Of(any) *Socket { return nil }

// Read fails.
func (*Socket) Read(Lender) (int, error) { return 0, errors.ErrUnsupported }

// TryWrite fails.
func (*Socket) TryWrite([]byte) (int, error) { return 0, errors.ErrUnsupported }
