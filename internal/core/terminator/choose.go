// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
)

// Query is what a dial asks for.
type Query struct {
	Strategy ginnel.Strategy // empty: Smartrouting
	Instance string          // empty: any
	Protocol ginnel.Protocol // empty: TCP
	// Sticky is the terminator that the client had last; for the strategy Sticky.
	Sticky ginnel.TerminatorID
}

// Choose picks one candidate by the query's strategy, within the best
// precedence that there is. It gives all eligible candidates, best first, and
// the index of the one picked. rng decides for the strategies Weighted and
// RandomPick alone; the same rng state and candidates give the same choice.
func Choose(candidates []Candidate, q Query, rng *rand.Rand) (eligible []Costed, picked int, err *ginnel.DialError) {
	if !q.Strategy.Valid() {
		return nil, 0, ginnel.Errorf(ginnel.InvalidStrategy, "unknown strategy %q", q.Strategy)
	}
	eligible, err = Eligible(candidates, q)
	if err != nil {
		return nil, 0, err
	}
	class := best(eligible)
	switch q.Strategy {
	case ginnel.Weighted:
		return eligible, weighted(class, rng), nil
	case ginnel.RandomPick:
		return eligible, rng.IntN(len(class)), nil
	case ginnel.Sticky:
		if err := strange(class, q.Sticky); err != nil {
			return nil, 0, err
		}
		at := slices.IndexFunc(class, func(c Costed) bool { return c.Terminator.ID == q.Sticky })
		return eligible, max(0, at), nil
	case ginnel.Smartrouting, "":
	}
	return eligible, 0, nil
}

// strange says why a sticky token cannot be one that this service gave, or nil.
// That its terminator is gone says nothing: another one is taken then.
func strange(class []Costed, token ginnel.TerminatorID) *ginnel.DialError {
	own := class[0].Terminator.Service
	service, _, named := strings.Cut(string(token), "@")
	mine := func(c Costed) bool { return c.Terminator.ID == token }
	if !named || ginnel.ServiceID(service) == own || slices.ContainsFunc(class, mine) {
		return nil
	}
	return ginnel.Errorf(ginnel.StrategyError, "the sticky token is of service %s, not of %s", service, own)
}

// best gives those of the best precedence, which come first.
func best(eligible []Costed) []Costed {
	n := 1
	for n < len(eligible) && eligible[n].Terminator.Precedence == eligible[0].Terminator.Precedence {
		n++
	}
	return eligible[:n]
}

// weighted draws an index with shares of 1/max(total, 1).
func weighted(class []Costed, rng *rand.Rand) int {
	sum := 0.0
	for _, c := range class {
		sum += share(c)
	}
	at := rng.Float64() * sum
	for i, c := range class {
		if at -= share(c); at < 0 {
			return i
		}
	}
	return len(class) - 1 // what rounding left over
}

func share(c Costed) float64 { return 1 / max(c.Total.Float(), 1) }

// routers names the egress routers of the candidates that fit, each once.
func routers(candidates []Candidate, q Query) string {
	var ids []string
	for _, c := range candidates {
		if c.Carries() == cmp.Or(q.Protocol, ginnel.TCP) && (q.Instance == "" || c.Instance == q.Instance) {
			ids = append(ids, string(c.Router))
		}
	}
	slices.SortFunc(ids, cmp.Compare)
	ids = slices.Compact(ids)
	const most = 8
	if len(ids) > most {
		ids = append(ids[:most], "...")
	}
	return strings.Join(ids, ", ")
}
