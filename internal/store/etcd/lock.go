// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ginnel/ginnel/internal/store"
)

// lockDir takes the lock of a directory, until the result is closed or the
// process ends however it ends. etcd would wait for its own lock without a
// word, so this one comes first. The file holds the owner's process id.
func lockDir(dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil, &lockedError{dir: dir, owner: owner(f)}
	}
	if err := errors.Join(f.Truncate(0), writeOwner(f)); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

func writeOwner(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner gives the process id in a lock file; 0 if there is none to read yet.
func owner(f *os.File) int {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// lockedError is store.ErrLocked with what is known of the owner.
type lockedError struct {
	dir   string
	owner int // process id, or 0
}

func (e *lockedError) Error() string {
	text := "store directory " + e.dir + " is in use by another process"
	if e.owner != 0 {
		text += fmt.Sprintf(" (pid %d)", e.owner)
	}
	return text
}

func (e *lockedError) Unwrap() error { return store.ErrLocked }
