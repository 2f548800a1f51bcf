// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package transport

import "syscall"

func readNow(fd int, p []byte) (int, error)  { return syscall.Read(fd, p) }
func writeNow(fd int, p []byte) (int, error) { return syscall.Write(fd, p) }
