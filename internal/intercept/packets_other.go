// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package intercept

import "net"

// readable gives a function that always lets its caller read, which waits.
func readable(*net.UDPConn) func() bool { return func() bool { return true } }
