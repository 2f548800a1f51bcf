// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
)

// watch is the goroutine that follows the store and tells all others what has
// changed. It reports false when the store was closed.
func (c *Controller) watch(ctx context.Context, changes *store.Subscription) bool {
	for {
		select {
		case <-ctx.Done():
			return true
		case _, ok := <-changes.Ready():
			if !ok {
				return ctx.Err() != nil
			}
		}
		for _, change := range changes.Take() {
			c.changed(change)
		}
	}
}

// changed passes one change on. Nothing here waits.
func (c *Controller) changed(change store.Change) {
	switch change.Kind {
	case store.KindRouter:
		id := ginnel.RouterID(change.ID)
		c.channels.recheck(id)
		c.dials.stored(change)
		router, ok := change.New.(ginnel.Router)
		if !ok {
			c.fabric.forgetPeer(id)
			c.faults.forget(id)
		}
		if !ok || router.Disabled {
			c.ready.settled(id)
		}
		c.fabric.urgent.fire()
		c.configs.kick()
		c.services.stored(change)
		c.judge.stored(change)
	case store.KindIdentity, store.KindService, store.KindPolicy:
		c.services.stored(change)
		c.judge.stored(change)
	case store.KindTerminator:
		c.configs.terminator(change)
	case store.KindLink:
		c.configs.kick()
	case store.KindNetwork, store.KindEnrollment:
		// Nothing that is kept in memory depends on them.
	}
}
