// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// hostFlag is a service to host, and where.
type hostFlag struct {
	service ginnel.ServiceID
	address ginnel.Address
	check   *sdk.HealthCheck // nil: none

	// Instead of at an address, at what was asked for, where allow has it.
	requested ginnel.Protocol // empty: at the address
	allow     *tunnel.Allow
}

// String says what is hosted where.
func (h hostFlag) String() string {
	if h.requested != "" {
		return fmt.Sprintf("hosting %s at what is asked for", h.service)
	}
	return fmt.Sprintf("hosting %s at %s", h.service, h.address)
}

// run hosts the service until ctx ends.
func (h hostFlag) run(ctx context.Context, client *sdk.Client, forward tunnel.ForwardConfig) error {
	if h.requested != "" {
		return tunnel.HostRequested(ctx, client, h.service, h.requested, *h.allow, sdk.ListenOptions{}, forward)
	}
	return tunnel.Host(ctx, client, h.service, h.address, sdk.ListenOptions{Check: h.check}, forward)
}

// warn says so where the identity may not host the service when it begins: it is
// bound all the same, and dialed as soon as it may.
func (h hostFlag) warn(ctx context.Context, client *sdk.Client, log *slog.Logger) {
	if err := mayHost(ctx, client, h.service); err != nil && ctx.Err() == nil {
		log.Warn("nobody is led to what is hosted", "service", string(h.service), "err", err, "hint", strings.Join(hintsOf(err), "; "))
	}
}

// runParts runs a tunneler and what it hosts until ctx ends, or one of them does.
func runParts(ctx context.Context, client *sdk.Client, t *tunnel.Tunnel, hosts []hostFlag, forward tunnel.ForwardConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	problems := make([]error, len(hosts)+1)
	var running sync.WaitGroup
	start := func(i int, run func() error) {
		running.Go(func() {
			problems[i] = run()
			cancel()
		})
	}
	start(0, func() error { return t.Run(ctx) })
	for i, h := range hosts {
		start(i+1, func() error {
			return h.run(ctx, client, forward)
		})
		running.Go(func() { h.warn(ctx, client, forward.Log) })
	}
	running.Wait()
	return errors.Join(problems...)
}
