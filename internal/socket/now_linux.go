// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"syscall"
	"unsafe"
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

func outcome(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
