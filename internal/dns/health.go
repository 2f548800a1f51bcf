// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"slices"
	"time"
)

// health remembers which upstreams failed. An upstream is dead for a while
// after a failure, longer after each in a row; the dead come last in the
// order, so they are asked when nobody else answers.
//
// health is not safe for concurrent use.
type health struct {
	upstreams []upstreamHealth
}

type upstreamHealth struct {
	failures  int       // in a row
	deadUntil time.Time // meaningful when failures > 0
}

const (
	firstRest = 2 * time.Second
	maxRest   = time.Minute
)

func newHealth(count int) *health { return &health{make([]upstreamHealth, count)} }

// order gives the upstreams' numbers: the living as configured, then the dead,
// the one due first in front.
func (h *health) order(now time.Time) []int {
	order := make([]int, len(h.upstreams))
	for i := range order {
		order[i] = i
	}
	due := func(i int) time.Time {
		if u := h.upstreams[i]; u.failures > 0 && u.deadUntil.After(now) {
			return u.deadUntil
		}
		return time.Time{}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Or(due(a).Compare(due(b)), cmp.Compare(a, b)) })
	return order
}

// answered notes that upstream i gave an answer.
func (h *health) answered(i int) { h.upstreams[i] = upstreamHealth{} }

// failed notes that upstream i gave none.
func (h *health) failed(now time.Time, i int) {
	u := &h.upstreams[i]
	rest := min(maxRest, firstRest<<min(u.failures, 10))
	u.failures++
	u.deadUntil = now.Add(rest)
}
