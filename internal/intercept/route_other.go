// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package intercept

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"syscall"
)

func takeRange(netip.Prefix) (mend func() (bool, error), undo func() error, err error) {
	return nil, nil, errors.New("connections cannot be intercepted on " + runtime.GOOS + ": use --socks or --listen")
}

func removeLeftovers() (removed int, err error) { return 0, nil }

func ownAddress(netip.Addr) bool { return false }

// markSocket does nothing: nothing is intercepted.
func markSocket(_, _ string, _ syscall.RawConn) error { return nil }

func (s sources) control(_, _ string, _ syscall.RawConn) error { return nil }

type transparent struct {
	listener net.Listener
	packets  PacketSocket
}

func openTransparent(netip.Addr, netip.Prefix, sources) (*transparent, error) {
	return nil, errors.ErrUnsupported
}

func (t *transparent) set([]Target) error { return errors.ErrUnsupported }

func (t *transparent) change(_, _ []Target) error { return errors.ErrUnsupported }

func (t *transparent) whole() bool { return true }

func (t *transparent) again() error { return errors.ErrUnsupported }

func (t *transparent) close() error { return nil }

// LoopbackUp needs Linux.
func LoopbackUp() error { return errors.ErrUnsupported }
