// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
)

// Tokens that nobody used go when they have long expired, more of them than one
// commit takes; those that can be used, or were not long ago, stay.
func TestExpiredTokensAreCollected(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.wait(30 * time.Minute) // not at a round hour
		begun := time.Now()
		b.update(func(tx *store.Tx) error {
			for i := range 2*collectBatch + 10 {
				id := fmt.Sprintf("i%04d", i)
				if err := tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID(id)}); err != nil {
					return err
				}
				e := store.Enrollment{Role: ginnel.RoleIdentity, ID: id, Secret: "00", Expires: begun.Add(time.Hour)}
				if i%3 == 0 {
					e.Expires = begun.Add(300 * time.Hour)
				}
				if err := tx.Enrollments().Put(e); err != nil {
					return err
				}
			}
			return nil
		})
		all, kept := b.store.View().Enrollments().Len(), (2*collectBatch+10+2)/3
		b.wait(collectAfter)
		if n := b.store.View().Enrollments().Len(); n != all {
			t.Errorf("%d of %d tokens left, soon after they have expired", n, all)
		}
		b.backend.SetDown(true) // an hour without a store is made up for in the next
		b.wait(2 * time.Hour)
		b.backend.SetDown(false)
		b.wait(2 * time.Hour)
		if n := b.store.View().Enrollments().Len(); n != kept {
			t.Errorf("%d tokens left, want the %d that have not expired", n, kept)
		}
		for e := range b.store.View().Enrollments().All() {
			if e.Expires.Before(time.Now().Add(-collectAfter)) {
				t.Errorf("token of %s, expired %s, is left", e.ID, e.Expires)
			}
		}
	})
}
