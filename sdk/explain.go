// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// Explain is how a connection came about: what this end did and measured, and
// what the controller weighed.
type Explain struct {
	EdgeRouters []EdgeRouter      `json:"edge_routers"`
	Candidates  []Candidate       `json:"candidates,omitempty"`
	Path        []ginnel.RouterID `json:"path"`
	Links       []ginnel.LinkID   `json:"links"`
	Hops        []Hop             `json:"hops,omitempty"`
	Steps       []Step            `json:"steps"`      // of this end
	Controller  []Step            `json:"controller"` // of the controller, from when it had the request
}

// EdgeRouter is an edge router as a Client sees it.
type EdgeRouter struct {
	ID        ginnel.RouterID `json:"id"`
	Address   ginnel.Address  `json:"address"`
	Connected bool            `json:"connected"`
	RTT       ginnel.Duration `json:"rtt"` // smoothed; 0: unmeasured
	Chosen    bool            `json:"chosen"`
	Error     string          `json:"error,omitempty"` // why it is not connected
}

// Candidate is a terminator that the controller had to choose from.
type Candidate struct {
	Terminator ginnel.TerminatorID `json:"terminator"`
	Precedence string              `json:"precedence"`
	Static     ginnel.Cost         `json:"static"`
	Dynamic    ginnel.Cost         `json:"dynamic"`
	Path       ginnel.Cost         `json:"path"`
	Total      ginnel.Cost         `json:"total"`
	Chosen     bool                `json:"chosen"`
}

// Hop is one router of the path: how it is reached, at which cost, and how long
// it took to answer.
type Hop struct {
	Router ginnel.RouterID `json:"router"`
	Link   ginnel.LinkID   `json:"link,omitempty"`
	Cost   ginnel.Cost     `json:"cost"`
	Route  ginnel.Duration `json:"route"`
}

// Step is one step with its beginning, counted from the first step, and its length.
type Step struct {
	Name   string          `json:"name"`
	Start  ginnel.Duration `json:"start"`
	Took   ginnel.Duration `json:"took"`
	Detail string          `json:"detail,omitempty"`
}

// explained gives a controller's explanation with this end's own part.
func explained(resp *wire.DialResponse, edges []EdgeRouter, steps []Step) *Explain {
	x := &Explain{
		EdgeRouters: edges, Steps: steps,
		Path:  wire.IDs[ginnel.RouterID](resp.GetPath()),
		Links: wire.IDs[ginnel.LinkID](resp.GetLinks()),
	}
	for _, c := range resp.GetExplain().GetCandidates() {
		x.Candidates = append(x.Candidates, Candidate{
			Terminator: ginnel.TerminatorID(c.GetTerminator()), Precedence: c.GetPrecedence(),
			Static: ginnel.Cost(c.GetStaticCost()), Dynamic: ginnel.Cost(c.GetDynamicCost()),
			Path: ginnel.Cost(c.GetPathCost()), Total: ginnel.Cost(c.GetTotalCost()), Chosen: c.GetChosen(),
		})
	}
	for _, h := range resp.GetExplain().GetHops() {
		x.Hops = append(x.Hops, Hop{
			Router: ginnel.RouterID(h.GetRouter()), Link: ginnel.LinkID(h.GetLink()),
			Cost: ginnel.Cost(h.GetCost()), Route: ginnel.Duration(h.GetRouteNs()),
		})
	}
	for _, p := range resp.GetExplain().GetPhases() {
		x.Controller = append(x.Controller, Step{
			Name: p.GetName(), Start: ginnel.Duration(p.GetStartNs()),
			Took: ginnel.Duration(p.GetTookNs()), Detail: p.GetDetail(),
		})
	}
	return x
}
