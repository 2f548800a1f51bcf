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
// what the controller weighed, and how the routers answered; or how it ended.
type Explanation struct {
	Event      string              `json:"event" enum:"dial,resume,ended"`
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
	// Of a circuit that has ended.
	BytesSent     uint64 `json:"bytes_sent,omitempty" doc:"by the client"`
	BytesReceived uint64 `json:"bytes_received,omitempty" doc:"by the client"`
	ginnel.Weighed
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
