// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	"github.com/ginnel/ginnel/internal/store"
)

const (
	collectEvery = time.Hour
	// collectAfter is how long an expired token stays in the store, so that who
	// comes late hears that it has expired.
	collectAfter = 7 * 24 * time.Hour
	// collectBatch bounds how many are deleted in one commit.
	collectBatch = 256
)

// collectTokens is the goroutine that deletes the tokens that have long expired
// from the store, at the start and every hour. Several controllers may.
func (c *Controller) collectTokens(ctx context.Context) {
	for {
		if n, err := c.collectOnce(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("expired tokens not deleted", "err", err)
		} else if n > 0 {
			c.log.Info("expired tokens deleted", "tokens", n)
		}
		if !pause(ctx, collectEvery) {
			return
		}
	}
}

// collectOnce goes through the tokens page by page and gives how many it has deleted.
func (c *Controller) collectOnce(ctx context.Context) (deleted int, err error) {
	before := now().Add(-collectAfter)
	after := store.EnrollmentID("")
	for ctx.Err() == nil {
		page := c.store.View().Enrollments().Page(after, collectBatch)
		if len(page) == 0 {
			return deleted, nil
		}
		var old []store.EnrollmentID
		for _, row := range page {
			after = row.Record.EnrollmentID()
			if row.Record.Expires.Before(before) {
				old = append(old, after)
			}
		}
		n, err := c.deleteTokens(ctx, old, before)
		if deleted += n; err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

// deleteTokens deletes those of the tokens that are still there and as old.
func (c *Controller) deleteTokens(ctx context.Context, ids []store.EnrollmentID, before time.Time) (deleted int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	_, err = c.store.Update(ctx, func(tx *store.Tx) error {
		deleted = 0
		for _, id := range ids {
			e, err := tx.Enrollments().Get(id)
			switch {
			case errors.Is(err, store.ErrNotFound):
				continue
			case err != nil:
				return err
			case !e.Expires.Before(before):
				continue // it was replaced
			}
			if err := tx.Enrollments().Delete(id); err != nil {
				return err
			}
			deleted++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
