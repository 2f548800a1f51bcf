// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/ginnel/ginnel"
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

// rulesCache compiles policies only when they have changed.
type rulesCache struct {
	mu     sync.Mutex
	latest rules
	count  int            // of the policies compiled,
	newest store.Revision // and the newest of their revisions: together they tell every table from every later one
}

// rules gives the newest state of the store with its policies. It waits for
// nothing but, after a change of policies, their compilation.
func (c *Controller) rules() rules {
	view := c.store.View()
	k := &c.rulesCache
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.latest.View != nil && view.Revision() <= k.latest.Revision() {
		return k.latest
	}
	table := view.Policies()
	var list []ginnel.Policy
	var newest store.Revision
	for after := ginnel.PolicyID(""); ; {
		page := table.Page(after, 256)
		for _, row := range page {
			list = append(list, row.Record)
			newest = max(newest, row.Revision)
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Record.ID
	}
	set := k.latest.policies
	if set == nil || len(list) != k.count || newest != k.newest {
		set = policy.Compile(list)
	}
	k.latest, k.count, k.newest = rules{View: view, policies: set}, len(list), newest
	return k.latest
}

// current reports whether the cache is new enough to refuse out of it.
func (c *Controller) current() bool { return c.store.Age() < staleAfter }

// refusal gives err, or BUSY in its place while the cache is too old to know:
// another controller may know better.
func (c *Controller) refusal(err *ginnel.DialError) *ginnel.DialError {
	if c.current() {
		return err
	}
	busy := ginnel.Errorf(ginnel.Busy, "this controller has not heard of its store for %s", c.store.Age().Round(time.Second))
	busy.RetryAfter = ginnel.Duration(time.Second)
	return busy
}
