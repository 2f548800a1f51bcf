// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hostdns

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// errHeld is why lock fails when another has the file.
var errHeld = errors.New("locked by another process")

// lock keeps a file that is open for writing for whoever opened it, until it is
// closed or the process ends, however it ends. Who may only read it cannot: a lock
// that anybody can take says nothing.
func lock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if problem := raw.Control(func(fd uintptr) { err = unix.FcntlFlock(fd, unix.F_OFD_SETLK, &whole) }); problem != nil {
		return problem
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return errHeld
	}
	return err
}
