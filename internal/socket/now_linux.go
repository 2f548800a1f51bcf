// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The scheduler is not told of these calls: it would take the processor away
// from one that copies for some time, and wake a thread for it. They do not block.

// ReadNow is read(2) of a socket that does not block.
func ReadNow(fd int, p []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return outcome(n, e)
}

// WriteNow is write(2) of a socket that does not block.
func WriteNow(fd int, p []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return outcome(n, e)
}

// CloseWrite ends the stream to the peer, as net.TCPConn's own does.
func CloseWrite(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if _, _, e := syscall.RawSyscall(unix.SYS_SHUTDOWN, fd, unix.SHUT_WR, 0); e != 0 {
			failed = os.NewSyscallError("shutdown", e)
		}
	})
	return errors.Join(err, failed)
}

func outcome(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
