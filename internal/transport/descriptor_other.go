// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package transport

import "net"

// descriptor does not exist here: the writer goroutine does all writes.
type descriptor struct{}

func newDescriptor(net.Conn) *descriptor { return nil }

func (*descriptor) read(bool) (*[rawBuffer]byte, int, error) { return nil, 0, errWouldBlock }

func (*descriptor) write([]byte) (int, error) { return 0, errWouldBlock }
