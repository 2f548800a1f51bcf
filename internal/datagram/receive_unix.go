// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package datagram

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// receive gives each datagram that comes to a connected socket to take, which
// must neither keep it nor wait, until the socket or take fails. It holds memory
// only while datagrams are there.
func receive(socket net.Conn, take func(p []byte) error) error {
	able, ok := socket.(syscall.Conn)
	if !ok {
		return receiveHolding(socket, take)
	}
	raw, err := able.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	there := func(fd uintptr) (done bool) {
		b := buffers.Get().(*room)
		defer buffers.Put(b)
		for {
			n, err := syscall.Read(int(fd), b[:])
			switch {
			case errors.Is(err, syscall.EAGAIN):
				return false
			case errors.Is(err, syscall.EINTR):
				continue
			case err != nil:
				failed = os.NewSyscallError("read", err)
				return true
			}
			if failed = take(b[:n]); failed != nil {
				return true
			}
		}
	}
	for failed == nil {
		if err := raw.Read(there); err != nil {
			return err
		}
	}
	return failed
}
