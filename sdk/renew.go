// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

const (
	// renewPause is the longest wait between two attempts to renew; a third of the
	// certificate's life is left for them.
	renewPause = 10 * time.Minute
	// renewLook bounds how long a timer is trusted: a machine that slept comes back
	// with timers that are late.
	renewLook = time.Hour
)

// renew keeps the certificate valid, until ctx ends: at two thirds of its life it
// asks for another one for the same key. Connections stay, binds are signed again.
func (c *Client) renew(ctx context.Context) {
	for ctx.Err() == nil {
		leaf := c.holder.Load().Leaf
		if left := time.Until(pki.RenewAt(leaf)); left > 0 {
			sleep(ctx, min(left, renewLook))
			continue
		}
		if err := tooLate(c.holder.Load()); err != nil {
			c.log.Error("certificate not renewed", "err", err)
			return
		}
		if err := c.renewOnce(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("certificate not renewed", "ends", leaf.NotAfter, "err", err)
			sleep(ctx, pki.RenewPause(leaf, time.Now(), renewPause))
		}
	}
}

// tooLate gives an error once a certificate can no longer be renewed.
func tooLate(c *pki.Credential) error {
	end := c.Leaf.NotAfter
	if !time.Now().After(end.Add(pki.RenewGrace)) {
		return nil
	}
	return fmt.Errorf("%w: that of %s ended at %s, too long ago to be renewed: enroll again with a new token (ginnel identity token %s)",
		pki.ErrExpired, c.Self, end.UTC().Format(time.RFC3339), c.Self.ID)
}

// revive renews a certificate that has ended, before anything else is tried with it:
// no edge router would take it.
func (c *Client) revive(ctx context.Context) {
	leaf := c.holder.Load().Leaf
	if !time.Now().After(leaf.NotAfter) {
		return
	}
	if err := c.renewOnce(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn("certificate not renewed", "ended", leaf.NotAfter, "err", err)
	}
}

// sleep waits until ctx ends at the latest.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (c *Client) renewOnce(ctx context.Context) error {
	now := c.holder.Load()
	e := &enrolling{network: c.network, anchor: now.Anchor(), self: now.Self, key: now.Key, old: now.TLS()}
	var addresses []ginnel.Address
	for _, r := range c.edges.list() {
		addresses = append(addresses, r.Address)
	}
	held, err := e.anywhere(ctx, addresses)
	if err != nil {
		return err
	}
	if err := c.holder.Swap(held.Credential); err != nil {
		return err
	}
	if len(held.EdgeRouters) > 0 {
		c.edges.set(held.EdgeRouters)
	}
	c.log.Info("certificate renewed", "until", held.Credential.Leaf.NotAfter)
	c.edges.moved() // listeners look again
	c.announce()
	return nil
}

// announce gives the identity to who keeps its file.
func (c *Client) announce() {
	if c.opts.Renewed == nil {
		return
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	c.opts.Renewed(c.Identity())
}
