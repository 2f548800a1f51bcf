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
	EdgeRouters []EdgeRouter  `json:"edge_routers"`
	Steps       []ginnel.Step `json:"steps"` // of this end
	ginnel.Weighed
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

// explained gives a controller's explanation with this end's own part.
func explained(resp *wire.DialResponse, edges []EdgeRouter, steps []ginnel.Step) *Explain {
	x := &Explain{EdgeRouters: edges, Steps: steps, Weighed: resp.GetExplain().Weighed()}
	x.Path = wire.IDs[ginnel.RouterID](resp.GetPath())
	x.Links = wire.IDs[ginnel.LinkID](resp.GetLinks())
	return x
}
