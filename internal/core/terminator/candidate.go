// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// ToldAfter is when to ask again for a terminator that its router is being told of.
const ToldAfter = 100 * time.Millisecond

// Candidate is a terminator with all that its cost depends on.
type Candidate struct {
	// Terminator's Precedence is the effective one: Failed while a health check fails.
	ginnel.Terminator
	Dynamic ginnel.Cost // as reported by the egress router
	// InFlight is the number of set-ups at this terminator that the asking
	// controller has begun and not ended.
	InFlight int
	// Quiesced: the egress router takes no new circuits.
	Quiesced bool
	// Untold: the egress router does not know of the terminator yet; it is being told.
	Untold bool
	// Online: the egress router is connected.
	Online bool
	// Reachable: there is a path to the egress router, whose cost is Path.
	Reachable bool
	Path      ginnel.Cost
}

// Costed is a candidate with each term of its cost.
type Costed struct {
	Terminator ginnel.Terminator
	Static     ginnel.Cost
	Dynamic    ginnel.Cost
	InFlight   ginnel.Cost
	Path       ginnel.Cost
	Total      ginnel.Cost // the sum of these
}

// Cost gives the terms of the candidate's cost.
func (c Candidate) Cost() Costed {
	cost := Costed{
		Terminator: c.Terminator,
		Static:     max(0, c.StaticCost),
		Dynamic:    max(0, c.Dynamic),
		InFlight:   circuitsCost(c.InFlight),
		Path:       c.Path,
	}
	cost.Total = cost.Static.Add(cost.Dynamic).Add(cost.InFlight).Add(cost.Path)
	return cost
}

// rank orders by precedence, then cost, then id.
func rank(a, b Costed) int {
	return cmp.Or(
		cmp.Compare(a.Terminator.Precedence, b.Terminator.Precedence),
		cmp.Compare(a.Total, b.Total),
		cmp.Compare(a.Terminator.ID, b.Terminator.ID),
	)
}

// Eligible gives the candidates that a circuit can have, best first: those with
// the asked protocol and instance (empty: any) on a router that can be reached
// and takes new circuits. When there are none the error says why.
func Eligible(candidates []Candidate, q Query) ([]Costed, *ginnel.DialError) {
	var out []Costed
	protocol := cmp.Or(q.Protocol, ginnel.TCP)
	carrying, matching, quiesced, online, untold := 0, 0, 0, 0, 0
	for _, c := range candidates {
		if c.Carries() != protocol {
			continue
		}
		carrying++
		if q.Instance != "" && c.Instance != q.Instance {
			continue
		}
		matching++
		if c.Quiesced {
			quiesced++
			continue
		}
		if c.Online {
			online++
		}
		switch {
		case !c.Online || !c.Reachable:
		case c.Untold:
			untold++
		default:
			out = append(out, c.Cost())
		}
	}
	switch {
	case len(out) > 0:
		slices.SortFunc(out, rank)
		return out, nil
	case untold > 0:
		busy := ginnel.Errorf(ginnel.Busy, "every terminator's router that can be reached is just being told of it: %s", routers(candidates, q))
		busy.RetryAfter = ginnel.Duration(ToldAfter)
		return nil, busy
	case len(candidates) == 0:
		return nil, ginnel.Errorf(ginnel.NoTerminators, "the service has no terminators")
	case carrying == 0:
		return nil, ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "the service has no terminator for %s, only for the other protocol", protocol)
	case matching == 0:
		return nil, ginnel.Errorf(ginnel.NoTerminatorForInstance, "no terminator has instance %q", q.Instance)
	case online == 0 && quiesced > 0:
		return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "every terminator's router is quiesced or not connected: %s", routers(candidates, q))
	case online == 0:
		return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "no terminator's router is connected: %s", routers(candidates, q))
	}
	return nil, ginnel.Errorf(ginnel.NoPath, "no path to any terminator's router: %s", routers(candidates, q))
}
