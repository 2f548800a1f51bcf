// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package socket

import "syscall"

// ReadNow is read(2) of a socket that does not block.
func ReadNow(fd int, p []byte) (int, error) { return syscall.Read(fd, p) }

// WriteNow is write(2) of a socket that does not block.
func WriteNow(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }
