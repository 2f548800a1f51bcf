// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hostdns

import (
	"context"
	"errors"
	"net/netip"
)

// resolved does not exist here.
type resolved struct{}

func resolvedRuns(context.Context) bool { return false }

func openResolved(context.Context, netip.AddrPort) (*resolved, error) {
	return nil, errors.ErrUnsupported
}

func (*resolved) tell(context.Context) error { return errors.ErrUnsupported }

func (*resolved) restarts(context.Context, func(context.Context)) {}

func (*resolved) setDomains(context.Context, []string) error { return errors.ErrUnsupported }

func (*resolved) close() error { return nil }
