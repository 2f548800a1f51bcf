// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
)

// faults halts a router and measures until nobody dials over it, then kills another.
func (n *network) faults(found *perf.Comparison) error {
	ctx, cancel := context.WithTimeout(n.fleet.ctx, time.Minute)
	defer cancel()
	gone := func(router ginnel.RouterID) func() (bool, error) {
		return func() (bool, error) {
			r, err := n.client.Routers().Get(ctx, string(router))
			return err == nil && !r.Connected, err
		}
	}
	unlinked := func(router ginnel.RouterID) func() (bool, error) {
		return func() (bool, error) {
			links, err := n.client.Links().List(ctx)
			for _, l := range links {
				if l.Up && (l.A == router || l.B == router) {
					return false, err
				}
			}
			return err == nil, err
		}
	}
	begin := time.Now()
	if err := n.processes[beyond].Halt(ctx); err != nil {
		return err
	}
	if err := Until(ctx, "a silent link to be down", unlinked(beyond)); err != nil {
		return err
	}
	found.Add(perf.Faults, perf.AfterSilentLink, "ms", milliseconds(time.Since(begin)))
	if err := Until(ctx, "a silent router to be gone", gone(beyond)); err != nil {
		return err
	}
	found.Add(perf.Faults, perf.AfterSilentCtrl, "ms", milliseconds(time.Since(begin)))
	if err := n.processes[beyond].Kill(); err != nil {
		return err
	}
	begin = time.Now()
	if err := n.processes[egress].Kill(); err != nil {
		return err
	}
	for _, seen := range []func() (bool, error){unlinked(egress), gone(egress)} {
		if err := Until(ctx, "a killed router to be gone", seen); err != nil {
			return err
		}
	}
	found.Add(perf.Faults, perf.AfterKill, "ms", milliseconds(time.Since(begin)))
	return nil
}
