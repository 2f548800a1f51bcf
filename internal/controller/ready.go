// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
)

// strangerTime is how long a starting controller waits for routers that it
// cannot dial.
const strangerTime = 15 * time.Second

// readiness knows of which routers a starting controller does not know yet what
// they have: each enabled one until it has reported, or its first dial has
// failed, or it has come and gone. Routers that nobody dials get strangerTime.
type readiness struct {
	c    *Controller
	done atomic.Bool

	mu      sync.Mutex
	begun   bool
	unknown map[ginnel.RouterID]bool // true: it is dialed
}

func newReadiness(c *Controller) *readiness {
	return &readiness{c: c, unknown: make(map[ginnel.RouterID]bool)}
}

func (r *readiness) is() bool { return r.done.Load() }

// begin takes the routers that there are at the start.
func (r *readiness) begin(view *store.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for router := range view.Routers().All() {
		if !router.Disabled && router.Key != "" {
			r.unknown[router.ID] = len(r.c.dialable(router)) > 0
		}
	}
	r.begun = true
	r.checkLocked()
}

// settled says that nothing more is to be waited for from a router.
func (r *readiness) settled(id ginnel.RouterID) {
	if r.is() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unknown, id)
	r.checkLocked()
}

// run ends the waiting for those that cannot be dialed.
func (r *readiness) run(ctx context.Context) {
	if !pause(ctx, strangerTime) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, dialed := range r.unknown {
		if !dialed {
			delete(r.unknown, id)
		}
	}
	r.checkLocked()
}

func (r *readiness) checkLocked() {
	if r.begun && len(r.unknown) == 0 && !r.done.Swap(true) {
		r.c.log.Info("controller is ready", "after", time.Since(r.c.started))
	}
}
