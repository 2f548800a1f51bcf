// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net"
	"syscall"
)

// socketPeer names the user who connected, as the kernel noted it then
// (SO_PEERCRED of unix(7)).
func socketPeer(conn net.Conn) string {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return localPeer
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return localPeer
	}
	who := localPeer
	err = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			who = fmt.Sprintf("%s uid %d", localPeer, cred.Uid)
		}
	})
	if err != nil {
		return localPeer
	}
	return who
}
