// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package health checks whether what stands behind a terminator answers: it is
// the shell of terminator.Health, for routers and for SDKs that host.
//
// A [Checker] bounds how many checks run at once and makes each of them over
// connections that its Dial opens. It decides nothing: when to check, and after
// how many results the answer is another one, says the core. It reports to whom
// it was given and knows no terminators, routers or messages.
package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

// maxHeader bounds what an HTTP server may answer before its body, in bytes.
// The body is not read.
const maxHeader = 16 << 10

// Checker checks addresses. It does not change: safe for use by any number of
// goroutines.
type Checker struct {
	// Dial opens a TCP connection to host:port.
	Dial func(ctx context.Context, hostport string) (net.Conn, error)
	// Jitter gives a number from 0 up to 1, for any number of goroutines: it
	// keeps the checks of many apart.
	Jitter func() float64
	// Places bounds the checks that run at once, by its capacity; nil: no bound.
	Places chan struct{}
}

// Run checks an address from now on, until ctx ends. Of each change of health it
// tells changed, with the error that the last check met; at first the address is
// well. check has all its values.
func (c *Checker) Run(ctx context.Context, address ginnel.Address, check ginnel.Check, changed func(unhealthy bool, err error)) {
	h := terminator.NewHealth(check, time.Now(), c.Jitter())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, _ := h.Due()
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		h.Began()
		err := c.probe(ctx, address, check)
		if ctx.Err() != nil {
			return // a check that was broken off says nothing
		}
		if h.Ended(time.Now(), err == nil, c.Jitter()) {
			changed(h.Unhealthy(), err)
		}
	}
}

// probe checks once, when it has a place; nil: the address is well.
func (c *Checker) probe(ctx context.Context, address ginnel.Address, check ginnel.Check) error {
	if c.Places != nil {
		select {
		case c.Places <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-c.Places }()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(check.Timeout))
	defer cancel()
	if check.Kind == ginnel.HTTPCheck {
		return c.get(ctx, address.HostPort(), check.Path)
	}
	conn, err := c.Dial(ctx, address.HostPort())
	if err != nil {
		return err
	}
	return conn.Close()
}

// get asks once, over a connection of its own, and follows nothing.
func (c *Checker) get(ctx context.Context, hostport, path string) error {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, hostport string) (net.Conn, error) { return c.Dial(ctx, hostport) },
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxHeader,
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
