// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/store"
)

// staleAfter is how old the cache may be for a refusal to be trusted.
const staleAfter = 5 * time.Second

// rules is the store as of one revision with its policies compiled.
type rules struct {
	*store.View
	policies *policy.Set
}

// quiesced reports whether a router takes no new circuits.
func (r rules) quiesced(id ginnel.RouterID) bool {
	router, ok := r.Routers().Get(id)
	return ok && router.Quiesced
}

// rulesCache compiles policies only when they have changed. It keeps no view,
// which would keep what has been replaced since.
type rulesCache struct {
	latest    atomic.Pointer[compiled]
	compiling sync.Mutex
}

// compiled is the policies as of a revision that changed them.
type compiled struct {
	policies *policy.Set
	of       store.Revision
	each     map[ginnel.PolicyID]store.Revision
}

// next compiles what is different in a later view.
func (k *compiled) next(view *store.View) *compiled {
	if k == nil {
		k = &compiled{policies: new(policy.Set)}
	}
	now := &compiled{of: view.Changed(store.KindPolicy), each: make(map[ginnel.PolicyID]store.Revision, view.Policies().Len())}
	var put []ginnel.Policy
	var gone []ginnel.PolicyID
	for row := range view.Policies().Rows() {
		now.each[row.Record.ID] = row.Revision
		if k.each[row.Record.ID] != row.Revision {
			put = append(put, row.Record)
		}
	}
	for id := range k.each {
		if _, there := now.each[id]; !there {
			gone = append(gone, id)
		}
	}
	now.policies = k.policies.With(put, gone)
	return now
}

// rules gives the newest state of the store with its policies. It waits for
// nothing but, after a change of policies, their compilation.
func (c *Controller) rules() rules {
	view, k := c.store.View(), &c.rulesCache
	known := k.latest.Load()
	if known == nil || known.of != view.Changed(store.KindPolicy) {
		k.compiling.Lock()
		defer k.compiling.Unlock()
		view = c.store.View() // as late as what others have compiled meanwhile
		if known = k.latest.Load(); known == nil || known.of != view.Changed(store.KindPolicy) {
			known = known.next(view)
			k.latest.Store(known)
		}
	}
	return rules{View: view, policies: known.policies}
}

// current reports whether the cache is new enough to refuse out of it.
func (c *Controller) current() bool { return c.store.Age() < staleAfter }

// sureTime is how long a refusal may wait at most for the cache.
const sureTime = 2 * time.Second

// sure decides once more when the cache has all that anybody had written by now, so
// that a refusal does not depend on which controller was asked. BUSY says that it
// has not, in the time that a caller can spare: another controller may know better.
func (c *Controller) sure(deadline time.Time, again decide) *ginnel.DialError {
	ctx, cancel := context.WithTimeout(context.Background(), min(sureTime, time.Until(deadline)/2))
	defer cancel()
	if !c.current() || c.store.Sync(ctx) != nil {
		return c.unsure()
	}
	return again()
}

// refusal gives err, or BUSY in its place while the cache is too old to know:
// another controller may know better.
func (c *Controller) refusal(err *ginnel.DialError) *ginnel.DialError {
	if c.current() {
		return err
	}
	return c.unsure()
}

// unsure says that another controller may know better.
func (c *Controller) unsure() *ginnel.DialError {
	busy := ginnel.Errorf(ginnel.Busy, "%s", c.staleness())
	busy.RetryAfter = ginnel.Duration(circuit.UnsureRetry)
	return busy
}

// staleness says how old the cache is.
func (c *Controller) staleness() string {
	return fmt.Sprintf("this controller may be behind, it has not heard of its store for %s", c.store.Age().Round(time.Second))
}
