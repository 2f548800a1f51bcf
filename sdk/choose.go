// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// A switch to another edge router needs a gain of more than a tenth of the
// round trip and more than switchGain, so that noise moves nothing.
const (
	switchShare = 10
	switchGain  = 2 * time.Millisecond
)

// candidate is a connected edge router that may carry a circuit.
type candidate struct {
	id  ginnel.RouterID
	rtt time.Duration // smoothed; 0: unmeasured
	// failed: a dial through it failed a moment ago, and not for the service.
	failed bool
}

// rank orders candidates: those without recent failures first, then measured
// ones, then by round trip; ties by id.
func rank(a, b candidate) int {
	return cmp.Or(
		bools(a.failed, b.failed),
		bools(a.rtt == 0, b.rtt == 0),
		cmp.Compare(a.rtt, b.rtt),
		cmp.Compare(a.id, b.id),
	)
}

// bools orders false before true.
func bools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// nearlyAs reports whether c is as good as b but for a gain that is not worth a
// switch, times so much.
func (c candidate) nearlyAs(b candidate, times time.Duration) bool {
	if c.failed != b.failed || (c.rtt == 0) != (b.rtt == 0) {
		return false
	}
	gain := c.rtt - b.rtt
	return gain <= times*switchGain || gain <= times*c.rtt/switchShare
}

// choose gives the edge router to use, given the one that was used before, if
// any. There must be a candidate. It changes nothing that it is given.
//
// pick, if not nil, spreads: where there is a choice to make, it gives the number
// of one among n candidates that are nearly as good as the best. One that was
// chosen so may have been behind already: it stays until it is so twice as far.
func choose(before ginnel.RouterID, all []candidate, pick func(n int) int) ginnel.RouterID {
	best := slices.MinFunc(all, rank)
	patience := time.Duration(1)
	if pick != nil {
		patience = 2
	}
	var near []ginnel.RouterID
	for _, c := range all {
		if c.id == before && c.nearlyAs(best, patience) {
			return before
		}
		if c.nearlyAs(best, 1) {
			near = append(near, c.id)
		}
	}
	if pick == nil {
		return best.id
	}
	slices.Sort(near)
	return near[pick(len(near))]
}
