// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

// renewPause lies between two attempts to renew; a third of the certificate's life
// is left for them.
const renewPause = 10 * time.Minute

// renew keeps the certificate valid, until ctx ends: at two thirds of its life it
// asks for another one for the same key. Connections stay, binds are signed again.
func (c *Client) renew(ctx context.Context) {
	for {
		at := pki.RenewAt(c.holder.Load().Leaf)
		if !sleep(ctx, time.Until(at)) {
			return
		}
		if err := c.renewOnce(ctx); err != nil {
			c.log.Warn("certificate not renewed", "ends", c.holder.Load().Leaf.NotAfter, "err", err)
			if !sleep(ctx, renewPause) {
				return
			}
		}
	}
}

// sleep waits; false: ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
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
