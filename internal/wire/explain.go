// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/ginnel/ginnel"

// Weighed gives an explanation in nouns; path and links stand beside it in
// messages.
func (x *Explain) Weighed() ginnel.Weighed {
	w := ginnel.Weighed{Controller: []ginnel.Step{}}
	for _, c := range x.GetCandidates() {
		w.Candidates = append(w.Candidates, ginnel.Candidate{
			Terminator: ginnel.TerminatorID(c.GetTerminator()), Precedence: c.GetPrecedence(),
			Static: ginnel.Cost(c.GetStaticCost()), Dynamic: ginnel.Cost(c.GetDynamicCost()),
			Path: ginnel.Cost(c.GetPathCost()), Total: ginnel.Cost(c.GetTotalCost()), Chosen: c.GetChosen(),
		})
	}
	for _, h := range x.GetHops() {
		w.Hops = append(w.Hops, ginnel.Hop{
			Router: ginnel.RouterID(h.GetRouter()), Link: ginnel.LinkID(h.GetLink()),
			Cost: ginnel.Cost(h.GetCost()), Route: ginnel.Duration(h.GetRouteNs()),
		})
	}
	for _, p := range x.GetPhases() {
		w.Controller = append(w.Controller, ginnel.Step{
			Name: p.GetName(), Start: ginnel.Duration(p.GetStartNs()),
			Took: ginnel.Duration(p.GetTookNs()), Detail: p.GetDetail(),
		})
	}
	return w
}
