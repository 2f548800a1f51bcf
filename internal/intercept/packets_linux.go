// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// readable gives a function that waits, without memory for a datagram, until one
// can be read; false: the socket is closed.
func readable(socket *net.UDPConn) func() bool {
	raw, err := socket.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	look := func(fd uintptr) bool {
		events := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(events[:], 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	return func() bool { return raw.Read(look) == nil }
}
