// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxProbes is how many health checks run at once; the others wait.
const maxProbes = 64

// readCheck reads a check; nil: there is none that this router understands.
func readCheck(c *wire.HealthCheck) *ginnel.Check {
	ms := func(n uint32) ginnel.Duration { return ginnel.Duration(time.Duration(n) * time.Millisecond) }
	check := ginnel.Check{
		Kind: ginnel.CheckKind(c.GetKind()), Path: c.GetPath(), Interval: ms(c.GetIntervalMs()), Timeout: ms(c.GetTimeoutMs()),
		Failures: int(c.GetFailures()), Successes: int(c.GetSuccesses()),
	}
	if c == nil || check.Validate() != nil {
		return nil
	}
	return &check
}

// checkLocked makes a terminator be checked as it is told, on a goroutine of its
// own. Another check begins anew: the terminator is well.
func (ts *terms) checkLocked(t *term, told *wire.HealthCheck) {
	check := readCheck(told)
	if check == t.check || check != nil && t.check != nil && *check == *t.check {
		return
	}
	ts.uncheckLocked(t)
	t.check, t.checked, t.unhealthy = check, check != nil, false
	switch barred := ts.c.r.allowed.check(t.address); {
	case check == nil:
	case barred != nil: // it is not to be reached, not even to be looked at
		t.unhealthy = true
	default:
		ctx, cancel := context.WithCancel(ts.c.r.ctx)
		t.uncheck = cancel
		ts.c.r.running.Go(func() {
			ts.checker.Run(ctx, t.address, *check, func(unhealthy bool, err error) { ts.found(ctx, t, unhealthy, err) })
		})
	}
	ts.reportLocked(t)
}

// uncheckLocked ends the check of a terminator.
func (ts *terms) uncheckLocked(t *term) {
	if t.uncheck != nil {
		t.uncheck()
		t.uncheck = nil
	}
}

// found takes a change of health; ctx is that of the check.
func (ts *terms) found(ctx context.Context, t *term, unhealthy bool, err error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ctx.Err() != nil {
		return // another check counts now
	}
	t.unhealthy = unhealthy
	ts.reportLocked(t)
	if unhealthy {
		ts.c.r.log.Warn("terminator is unhealthy", "terminator", string(t.id), "address", string(t.address), "err", err)
	} else {
		ts.c.r.log.Info("terminator is healthy again", "terminator", string(t.id), "address", string(t.address))
	}
}

func (ts *terms) random() float64 {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.rng.Float64()
}
