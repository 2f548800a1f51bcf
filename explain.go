// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

// Weighed is how one set-up of a circuit came about, as the controller tells it:
// what it had to choose from, and how the routers answered. Candidates, path and
// hops are those of the last attempt, the steps those of all.
type Weighed struct {
	Candidates []Candidate `json:"candidates,omitempty"`
	Path       []RouterID  `json:"path,omitempty"`
	Links      []LinkID    `json:"links,omitempty"`
	Hops       []Hop       `json:"hops,omitempty"`
	Controller []Step      `json:"controller"` // from when the controller had the request
}

// Candidate is a terminator that there was to choose from, with each cost.
type Candidate struct {
	Terminator TerminatorID `json:"terminator"`
	Precedence string       `json:"precedence"`
	Static     Cost         `json:"static"`
	Dynamic    Cost         `json:"dynamic"`
	Path       Cost         `json:"path"`
	Total      Cost         `json:"total"`
	Chosen     bool         `json:"chosen"`
}

// Hop is one router of the path: how it is reached, at which cost, and how long
// it took to answer.
type Hop struct {
	Router RouterID `json:"router"`
	Link   LinkID   `json:"link,omitempty"`
	Cost   Cost     `json:"cost"`
	Route  Duration `json:"route"`
}

// Step is one step with its beginning, counted from the first, and its length.
type Step struct {
	Name   string   `json:"name"`
	Start  Duration `json:"start"`
	Took   Duration `json:"took"`
	Detail string   `json:"detail,omitempty"`
}
