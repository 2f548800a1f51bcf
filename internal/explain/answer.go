// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"math/rand/v2"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/circuit"
	"github.com/ginnel/ginnel/internal/core/path"
	engine "github.com/ginnel/ginnel/internal/core/terminator"
)

// Units is a cost that reads as a number of units with three decimals at most.
type Units ginnel.Cost

// String gives the number of units.
func (u Units) String() string { return ginnel.Cost(u).String() }

// MarshalJSON gives a number.
func (u Units) MarshalJSON() ([]byte, error) { return []byte(u.String()), nil }

// Answer is a path, and the terminator it leads to where a service was asked for.
type Answer struct {
	Path       []ginnel.RouterID   `json:"path"`
	Links      []ginnel.LinkID     `json:"links"`
	Cost       Units               `json:"cost"` // of the path
	Terminator ginnel.TerminatorID `json:"terminator,omitempty"`
	Candidates []Candidate         `json:"candidates,omitempty"` // best first
	Hops       []Hop               `json:"hops"`
}

// Candidate is a terminator that could have been chosen, with the terms of its cost.
type Candidate struct {
	Terminator ginnel.TerminatorID `json:"terminator"`
	Precedence ginnel.Precedence   `json:"precedence"`
	Static     Units               `json:"static"`
	Dynamic    Units               `json:"dynamic"`
	Path       Units               `json:"path"`
	Total      Units               `json:"total"`
}

// Hop is a link of the path and the router that it leads to, with their costs.
type Hop struct {
	Link       ginnel.LinkID   `json:"link"`
	Router     ginnel.RouterID `json:"router"`
	LinkCost   Units           `json:"linkCost"`
	RouterCost Units           `json:"routerCost"`
}

// Path explains the path between two routers. An error is a *ginnel.DialError.
func (t *Topology) Path(from, to ginnel.RouterID) (Answer, error) {
	p, ok := t.trees.From(from, path.Exclusions{}).To(to)
	if !ok {
		return Answer{}, t.noPath(from, to)
	}
	return answer(p, t.trees.Snapshot().Hops(p)), nil
}

// noPath says why there is no path.
func (t *Topology) noPath(from, to ginnel.RouterID) error {
	for _, id := range []ginnel.RouterID{from, to} {
		switch {
		case !t.known[id]:
			return ginnel.Errorf(ginnel.NoPath, "there is no router %q", id)
		case !t.trees.Snapshot().Connected(id):
			return ginnel.Errorf(ginnel.NoPath, "router %s is not connected", id)
		}
	}
	return ginnel.Errorf(ginnel.NoPath, "no path from router %s to router %s", from, to)
}

// Service explains which terminator of a service a circuit from a router gets.
// rng decides where the service's strategy draws. An error is a *ginnel.DialError.
func (t *Topology) Service(from ginnel.RouterID, name string, rng *rand.Rand) (Answer, error) {
	choice, err := t.choose(from, name, rng)
	if err != nil {
		return Answer{}, err
	}
	a := answer(choice.Path, choice.Hops)
	a.Terminator = choice.Terminator.ID
	for _, c := range choice.Candidates {
		a.Candidates = append(a.Candidates, Candidate{
			Terminator: c.Terminator.ID, Precedence: c.Terminator.Precedence,
			Static: Units(c.Static), Dynamic: Units(c.Dynamic.Add(c.InFlight)), Path: Units(c.Path), Total: Units(c.Total),
		})
	}
	return a, nil
}

// Picks repeats the choice n times and counts what was chosen.
func (t *Topology) Picks(from ginnel.RouterID, name string, n int, rng *rand.Rand) (map[ginnel.TerminatorID]int, error) {
	picks := make(map[ginnel.TerminatorID]int)
	for range n {
		choice, err := t.choose(from, name, rng)
		if err != nil {
			return nil, err
		}
		picks[choice.Terminator.ID]++
	}
	return picks, nil
}

func (t *Topology) choose(from ginnel.RouterID, name string, rng *rand.Rand) (circuit.Choice, error) {
	s, ok := t.services[name]
	if !ok {
		return circuit.Choice{}, ginnel.Errorf(ginnel.InvalidService, "there is no service %q", name)
	}
	choice, err := circuit.Choose(t.trees, from, s.candidates, engine.Query{Strategy: s.strategy}, circuit.Exclusions{}, rng)
	switch {
	case err == nil:
		return choice, nil
	case err.Code == ginnel.NoPath && !t.trees.Snapshot().Connected(from):
		return circuit.Choice{}, t.noPath(from, from)
	}
	return circuit.Choice{}, err
}

func answer(p path.Path, hops []path.Hop) Answer {
	a := Answer{Path: p.Routers, Links: p.Links, Cost: Units(p.Cost), Hops: []Hop{}}
	for _, h := range hops {
		a.Hops = append(a.Hops, Hop{Link: h.Link, Router: h.Router, LinkCost: Units(h.LinkCost), RouterCost: Units(h.RouterCost)})
	}
	return a
}
