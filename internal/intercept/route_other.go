// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package intercept

import (
	"errors"
	"net/netip"
	"runtime"
)

func takeRange(netip.Prefix) (undo func() error, err error) {
	return nil, errors.New("connections cannot be intercepted on " + runtime.GOOS + ": use --socks or --listen")
}

func removeLeftovers() (removed int, err error) { return 0, nil }
