// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package transport

import "net"

// newSocket gives nil: the writer goroutine does all writes.
func newSocket(net.Conn) socket { return nil }
