// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Health is what a health check has found: a terminator is well until as many
// checks in a row as its Check says have failed, and from then on not until as
// many have succeeded. One goroutine owns it, or a mutex. Jitter is from 0 up to
// 1; it keeps the checks of many terminators apart.
type Health struct {
	check     ginnel.Check
	unhealthy bool
	against   int       // checks in a row that say otherwise
	due       time.Time // zero while a check runs
}

// NewHealth gives the health of a terminator of which nothing is known: it is
// well. check has all its values.
func NewHealth(check ginnel.Check, now time.Time, jitter float64) *Health {
	return &Health{check: check, due: now.Add(part(check.Interval, jitter))}
}

// Unhealthy reports whether the terminator's precedence is Failed.
func (h *Health) Unhealthy() bool { return h.unhealthy }

// Due gives when the next check is to begin; false while one runs.
func (h *Health) Due() (time.Time, bool) { return h.due, !h.due.IsZero() }

// Began says that a check has begun.
func (h *Health) Began() { h.due = time.Time{} }

// Ended takes the result of the check that began and reports whether the
// terminator's health is another one now.
func (h *Health) Ended(now time.Time, well bool, jitter float64) (changed bool) {
	// Between 0.9 and 1.1 intervals.
	h.due = now.Add(time.Duration(h.check.Interval) - part(h.check.Interval, 0.1) + part(h.check.Interval, 0.2*jitter))
	if well != h.unhealthy {
		h.against = 0
		return false
	}
	h.against++
	limit := h.check.Failures
	if h.unhealthy {
		limit = h.check.Successes
	}
	if h.against < limit {
		return false
	}
	h.unhealthy, h.against = !h.unhealthy, 0
	return true
}

func part(d ginnel.Duration, share float64) time.Duration {
	return time.Duration(float64(d) * share)
}
