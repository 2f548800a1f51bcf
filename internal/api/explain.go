// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ginnel/ginnel"
)

// Explanation is how one set-up of a circuit, its dial or a resume, came about:
// what the controller weighed, and how the routers answered.
type Explanation struct {
	Circuit    ginnel.CircuitID    `json:"circuit"`
	Service    ginnel.ServiceID    `json:"service"`
	Client     ginnel.IdentityID   `json:"client"`
	Ingress    ginnel.RouterID     `json:"ingress"`
	Resume     uint32              `json:"resume,omitempty" doc:"number of the resume; 0: it is the dial"`
	Protocol   ginnel.Protocol     `json:"protocol" doc:"what it carries: tcp or udp"`
	At         time.Time           `json:"at" doc:"when the controller had the request"`
	Took       ginnel.Duration     `json:"took"`
	Code       ginnel.Code         `json:"code"`
	Cause      string              `json:"cause,omitempty"`
	Terminator ginnel.TerminatorID `json:"terminator,omitempty"`
	Peer       string              `json:"peer,omitempty"`
	Attempts   []ginnel.Attempt    `json:"attempts"`
	// The rest tells of the last attempt, but the steps of all.
	Candidates []Candidate       `json:"candidates,omitempty"`
	Path       []ginnel.RouterID `json:"path,omitempty"`
	Links      []ginnel.LinkID   `json:"links,omitempty"`
	Hops       []Hop             `json:"hops,omitempty"`
	Controller []Step            `json:"controller" doc:"steps at the controller, from when it had the request"`
}

// Candidate is a terminator that there was to choose from, with each cost.
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

// Step is one step with its beginning, counted from the first, and its length.
type Step struct {
	Name   string          `json:"name"`
	Start  ginnel.Duration `json:"start"`
	Took   ginnel.Duration `json:"took"`
	Detail string          `json:"detail,omitempty"`
}

func registerExplain(a huma.API, c Circuits) {
	huma.Register(a, huma.Operation{OperationID: "explain-circuit", Method: http.MethodGet, Path: pathCircuits + "/{id}/explain"},
		func(ctx context.Context, in *byID) (*reply[[]Explanation], error) {
			return answer(c.ExplainCircuit(ctx, in.ID))
		})
}

// ExplainCircuit gives how the recent set-ups of a circuit came about.
func (c *Client) ExplainCircuit(ctx context.Context, id string) ([]Explanation, error) {
	return get[[]Explanation](ctx, c, one(pathCircuits, id)+"/explain")
}
