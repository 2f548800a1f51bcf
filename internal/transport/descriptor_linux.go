// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"syscall"
	"unsafe"
)

// readNow and writeNow are read(2) and write(2) of a socket that does not block.
// The scheduler is not told: it would take the processor away from a call that
// copies for some time, and wake a thread for it.

func readNow(fd int, p []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return outcome(n, e)
}

func writeNow(fd int, p []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return outcome(n, e)
}

func outcome(n uintptr, e syscall.Errno) (int, error) {
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
