// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"math"
	"strconv"
	"time"
)

// Cost is the price of a link, router, path or terminator in micro-units:
// 1,000,000 are one unit, and one unit stands for 1 ms of round-trip time.
// Costs are never negative and saturate at MaxCost.
type Cost int64

const (
	// Unit is a cost of 1.
	Unit Cost = 1_000_000
	// MaxCost is where costs saturate.
	MaxCost Cost = math.MaxInt64
	// MinRouterCost is the default least cost of entering a router.
	MinRouterCost = 10 * Unit
	// DefaultLinkCost is the static cost of a link where none is configured.
	DefaultLinkCost = Unit
	// UnmeasuredLinkCost stands in for the round-trip time of a link without a sample.
	UnmeasuredLinkCost = 1000 * Unit
)

// Units gives n whole units, saturating; a negative n gives 0.
func Units(n int64) Cost {
	switch {
	case n <= 0:
		return 0
	case n > int64(MaxCost/Unit):
		return MaxCost
	}
	return Cost(n) * Unit
}

// RTTCost gives the cost of a round-trip time: one unit per millisecond.
func RTTCost(rtt time.Duration) Cost { return max(0, Cost(rtt.Nanoseconds())) }

// Add gives c + d, saturating at MaxCost.
func (c Cost) Add(d Cost) Cost {
	if d > MaxCost-c {
		return MaxCost
	}
	return c + d
}

// Float gives the cost in units.
func (c Cost) Float() float64 { return float64(c) / float64(Unit) }

// String gives the cost in units with at most three decimals.
func (c Cost) String() string {
	return strconv.FormatFloat(math.Round(c.Float()*1000)/1000, 'f', -1, 64)
}
