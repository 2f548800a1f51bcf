// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// CheckKind is how a health check asks.
type CheckKind string

// The kinds of health checks.
const (
	TCPCheck  CheckKind = "tcp"  // a connection can be made
	HTTPCheck CheckKind = "http" // a GET is answered with a status below 400
)

// Check is a health check of a terminator's address by its egress router. While
// it fails the terminator's precedence is Failed. What is 0 has its default.
type Check struct {
	Kind CheckKind `json:"kind"`
	// Path that an HTTPCheck gets; empty: /.
	Path      string   `json:"path,omitempty"`
	Interval  Duration `json:"interval,omitempty"`  // between two checks; default 10 s
	Timeout   Duration `json:"timeout,omitempty"`   // of one check; default 2 s, or Interval if that is shorter
	Failures  int      `json:"failures,omitempty"`  // in a row until it has failed; default 3
	Successes int      `json:"successes,omitempty"` // in a row until it is well again; default 2
}

// Bounds of a Check.
const (
	minCheckInterval = Duration(time.Second)
	maxCheckInterval = Duration(time.Hour)
	maxCheckPath     = 1024
	maxCheckCount    = 100
)

// WithDefaults gives the check with every value that it has.
func (c Check) WithDefaults() Check {
	or := func(d *Duration, def time.Duration) {
		if *d == 0 {
			*d = Duration(def)
		}
	}
	or(&c.Interval, 10*time.Second)
	or(&c.Timeout, min(2*time.Second, time.Duration(c.Interval)))
	if c.Failures == 0 {
		c.Failures = 3
	}
	if c.Successes == 0 {
		c.Successes = 2
	}
	if c.Kind == HTTPCheck && c.Path == "" {
		c.Path = "/"
	}
	return c
}

// Validate reports what is wrong with a check that has all its values.
func (c Check) Validate() error {
	switch {
	case c.Kind != TCPCheck && c.Kind != HTTPCheck:
		return fmt.Errorf("check %q: want tcp or http", c.Kind)
	case c.Kind == TCPCheck && c.Path != "":
		return errors.New("check: only http has a path")
	case c.Kind == HTTPCheck && !plainPath(c.Path):
		return fmt.Errorf("check: path %q: want /... without spaces, at most %d bytes", c.Path, maxCheckPath)
	case c.Interval < minCheckInterval || c.Interval > maxCheckInterval:
		return fmt.Errorf("check: interval %s: want %s to %s", c.Interval, minCheckInterval, maxCheckInterval)
	case c.Timeout <= 0 || c.Timeout > c.Interval:
		return fmt.Errorf("check: timeout %s: want more than 0 and at most the interval, %s", c.Timeout, c.Interval)
	case c.Failures < 1 || c.Failures > maxCheckCount || c.Successes < 1 || c.Successes > maxCheckCount:
		return fmt.Errorf("check: %d failures, %d successes: want 1 to %d", c.Failures, c.Successes, maxCheckCount)
	}
	return nil
}

// plainPath reports whether a path can stand in a request line as it is.
func plainPath(p string) bool {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }
	return strings.HasPrefix(p, "/") && len(p) <= maxCheckPath && !strings.ContainsFunc(p, odd)
}
