// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/ginnel/ginnel/internal/pki"
)

// Bounds of the wait for the next look at the own certificate.
const (
	renewRetry  = time.Minute
	renewAtMost = 24 * time.Hour
)

// renewOwn is the goroutine that gives this controller a new certificate in
// time, for the same key. Connections that are up stay up.
func (c *Controller) renewOwn(ctx context.Context) {
	for {
		due := pki.RenewAt(c.holder.Load().Leaf)
		wait := min(max(0, time.Until(due)), renewAtMost)
		if !pause(ctx, wait) {
			return
		}
		if time.Now().Before(due) {
			continue
		}
		if err := c.renewNow(); err != nil {
			c.log.Error("own certificate not renewed", "err", err)
			if !pause(ctx, pki.RenewPause(c.holder.Load().Leaf, now(), renewRetry)) {
				return
			}
		}
	}
}

func (c *Controller) renewNow() error {
	old := c.holder.Load()
	renewed, err := issue(c.ca, c.settings.Load().certificateLife, old.Self, old.Key)
	if err != nil {
		return err
	}
	if c.renewed != nil {
		if err := c.renewed(renewed); err != nil {
			return err
		}
	}
	if err := c.holder.Swap(renewed); err != nil {
		return err
	}
	c.log.Info("own certificate renewed", "until", renewed.Leaf.NotAfter)
	return nil
}
