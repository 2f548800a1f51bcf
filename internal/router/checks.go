// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxProbes is how many health checks run at once; the others wait.
	maxProbes = 64
	// maxProbeHeader bounds what an HTTP server may answer before its body, in
	// bytes. The body is not read.
	maxProbeHeader = 16 << 10
)

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

// checkLocked makes a terminator be checked as it is told. Another check begins
// anew: the terminator is well.
func (ts *terms) checkLocked(t *term, told *wire.HealthCheck) {
	check := readCheck(told)
	switch {
	case check == nil && t.health == nil, check != nil && t.health != nil && t.health.Check() == *check:
		return
	case check == nil:
		t.health = nil
	default:
		t.health = terminator.NewHealth(*check, time.Now(), ts.rng.Float64())
	}
	ts.reportLocked(t)
	ts.kick()
}

func (ts *terms) kick() {
	select {
	case ts.wake <- struct{}{}:
	default:
	}
}

// runChecks is the goroutine that begins health checks when they are due.
func (ts *terms) runChecks(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ts.wake:
		case <-timer.C:
		}
		if next, ok := ts.beginChecks(ctx); ok {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// beginChecks begins what is due and there is room for. It gives when the next
// one is; false: none before another ends or is configured.
func (ts *terms) beginChecks(ctx context.Context) (next time.Time, ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	now := time.Now()
	for _, t := range ts.byID {
		if t.health == nil || ts.probing >= maxProbes {
			continue
		}
		due, waits := t.health.Due()
		switch {
		case !waits:
		case due.After(now):
			if !ok || due.Before(next) {
				next, ok = due, true
			}
		default:
			health := t.health
			health.Began()
			ts.probing++
			ts.c.r.running.Go(func() { ts.checked(t, health, ts.c.r.probe(ctx, t.address, health.Check())) })
		}
	}
	return next, ok
}

// checked takes the result of a check.
func (ts *terms) checked(t *term, health *terminator.Health, err error) {
	ts.mu.Lock()
	ts.probing--
	changed := health.Ended(time.Now(), err == nil, ts.rng.Float64()) && ts.byID[t.id] == t && t.health == health
	if changed {
		ts.reportLocked(t)
	}
	unhealthy := health.Unhealthy()
	ts.mu.Unlock()
	ts.kick()
	switch {
	case changed && unhealthy:
		ts.c.r.log.Warn("terminator is unhealthy", "terminator", string(t.id), "address", string(t.address), "err", err)
	case changed:
		ts.c.r.log.Info("terminator is healthy again", "terminator", string(t.id), "address", string(t.address))
	}
}

// probe checks an address once; nil: it is well.
func (r *Router) probe(ctx context.Context, address ginnel.Address, check ginnel.Check) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(check.Timeout))
	defer cancel()
	if check.Kind == ginnel.HTTPCheck {
		return r.probeHTTP(ctx, address.HostPort(), check.Path)
	}
	conn, err := r.net.Dial(ctx, address.HostPort())
	if err != nil {
		return err
	}
	return conn.Close()
}

// probeHTTP asks once, over a connection of its own, and follows nothing.
func (r *Router) probeHTTP(ctx context.Context, hostport, path string) error {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, hostport string) (net.Conn, error) {
			return r.net.Dial(ctx, hostport)
		},
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxProbeHeader,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostport+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "ginnel-check")
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // nothing of it was wanted
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return nil
}
