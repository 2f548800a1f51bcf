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

// choose gives the edge router to use, given the one that was used before, if
// any. There must be a candidate. It changes nothing that it is given.
func choose(before ginnel.RouterID, all []candidate) ginnel.RouterID {
	best := slices.MinFunc(all, rank)
	i := slices.IndexFunc(all, func(c candidate) bool { return c.id == before })
	if i < 0 {
		return best.id
	}
	old := all[i]
	if old.failed != best.failed || (old.rtt == 0) != (best.rtt == 0) {
		return best.id
	}
	if gain := old.rtt - best.rtt; gain > switchGain && gain > old.rtt/switchShare {
		return best.id
	}
	return before
}
