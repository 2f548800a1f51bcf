// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"math"
	"time"
)

// Random is what the machine needs of a *rand.Rand.
type Random interface {
	// Float64 gives a number from [0, 1).
	Float64() float64
}

// FixedJitter is a Random that makes the random term of the backoff factor
// always this, from -0.5 to 0.5, for tests and for replays.
type FixedJitter float64

// Float64 gives the jitter as a number from [0, 1].
func (f FixedJitter) Float64() float64 { return float64(f) + 0.5 }

// grow gives the delay that follows delay after a failure.
func (d *Dialer) grow(delay time.Duration) time.Duration {
	factor := max(1, d.cfg.RetryBackoffFactor+d.rng.Float64()-0.5)
	grown := math.Round(float64(delay) * factor)
	if grown >= float64(d.cfg.MaxRetryInterval) {
		return d.cfg.MaxRetryInterval
	}
	return max(time.Duration(grown), d.cfg.MinRetryInterval)
}

// spread gives what is added to a delay so that many do not end together.
func (d *Dialer) spread(delay time.Duration) time.Duration {
	if d.cfg.DialSpread == 0 {
		return 0
	}
	return time.Duration(d.cfg.DialSpread * d.rng.Float64() * float64(delay))
}
