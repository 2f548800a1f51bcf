// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perf

import "net"

// droppedBy is known on Linux only.
func droppedBy(net.PacketConn) func() uint64 { return untold }
