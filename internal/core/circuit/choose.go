// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

// Exclusions are what earlier attempts of a set-up have found to fail.
type Exclusions struct {
	path.Exclusions
	Terminators []ginnel.TerminatorID
}

// Choice is a terminator, the path to it, and what it was chosen from.
type Choice struct {
	Terminator ginnel.Terminator
	Path       path.Path
	Hops       []path.Hop          // of Path, with their costs
	Candidates []terminator.Costed // all that were eligible, best first
}

// Chooser makes the choice for one attempt of a set-up, out of what the network
// looks like at that instant. It must not block. The error says why there is no
// choice; it is not changed by the set-up.
type Chooser interface {
	Choose(x Exclusions) (Choice, *ginnel.DialError)
}

// ChooserFunc is a Chooser that is a function.
type ChooserFunc func(x Exclusions) (Choice, *ginnel.DialError)

// Choose calls f.
func (f ChooserFunc) Choose(x Exclusions) (Choice, *ginnel.DialError) { return f(x) }

// Choose picks a terminator for a circuit that enters at ingress. It fills in
// what the network says of each candidate (Online, Reachable, Path); the rest
// is the caller's. The candidates are not changed.
func Choose(trees *path.Trees, ingress ginnel.RouterID, candidates []terminator.Candidate, q terminator.Query, x Exclusions, rng *rand.Rand) (Choice, *ginnel.DialError) {
	tree := trees.From(ingress, x.Exclusions)
	placed := make([]terminator.Candidate, 0, len(candidates))
	for _, c := range candidates {
		if slices.Contains(x.Terminators, c.ID) {
			continue
		}
		c.Online = trees.Snapshot().Connected(c.Router)
		c.Path, c.Reachable = tree.Cost(c.Router)
		placed = append(placed, c)
	}
	eligible, picked, err := terminator.Choose(placed, q, rng)
	if err != nil {
		if err.Code == ginnel.NoPath {
			err.Message = "ingress router " + string(ingress) + ": " + err.Message
		}
		return Choice{}, err
	}
	choice := Choice{Terminator: eligible[picked].Terminator, Candidates: eligible}
	choice.Path, _ = tree.To(choice.Terminator.Router)
	choice.Hops = trees.Snapshot().Hops(choice.Path)
	return choice, nil
}

// UnsureRetry is when to ask a controller again that is not sure.
const UnsureRetry = time.Second

// Unsure gives the error that a controller answers which may not know all that
// there is, and says why: it does not know that there is nothing, so BUSY stands in
// place of what says so. Other errors stay as they are.
func Unsure(err *ginnel.DialError, why string) *ginnel.DialError {
	unsure := []ginnel.Code{
		ginnel.NoTerminators, ginnel.NoOnlineTerminators, ginnel.NoTerminatorForInstance, ginnel.NoPath,
		ginnel.RouterErrMisconfiguredTerminator, // of this protocol, as far as is known
	}
	if !slices.Contains(unsure, err.Code) {
		return err
	}
	busy := ginnel.Errorf(ginnel.Busy, "%s: %s", why, err.Message)
	busy.RetryAfter = ginnel.Duration(UnsureRetry)
	return busy
}
