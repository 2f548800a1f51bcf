// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"sync"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuits is the data plane's side that controllers speak to.
type circuits struct {
	r  *Router
	mu sync.Mutex
}

func newCircuits(r *Router) *circuits { return &circuits{r: r} }

// run is the goroutine of the label table.
func (c *circuits) run(ctx context.Context) { <-ctx.Done() }

// configure takes what is to be hosted. Called in order of revisions; must not wait.
func (c *circuits) configure(*wire.RouterConfig) {}

// channelUp comes before any message of the channel.
func (c *circuits) channelUp(*ctrlChannel) {}

// channelGone comes after the last message of the channel.
func (c *circuits) channelGone(*ctrlChannel) {}

// route takes a Route on the channel's reading goroutine.
func (c *circuits) route(ch *ctrlChannel, m *wire.Message) error {
	route := m.GetRoute()
	return ch.conn.Reply(m.GetId(), &wire.Message{Body: &wire.Message_RouteResult{RouteResult: &wire.RouteResult{
		Circuit: route.GetCircuit(), Generation: route.GetGeneration(),
		Failure: wire.FailureOf(ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "router %s carries no circuits", c.r.id)),
	}}})
}

func (c *circuits) unroute(*ctrlChannel, *wire.Unroute) {}
func (c *circuits) revoke(*wire.Revoke)                 {}
func (c *circuits) hint(*wire.Hint)                     {}
func (c *circuits) services(*wire.Services)             {}

// linkUp comes before any frame of the link's connection.
func (c *circuits) linkUp(*link) {}

// linkGone comes after the last frame of the link's connection.
func (c *circuits) linkGone(*link) {}

// frame takes a frame with a label on the link's reading goroutine. An error
// ends the connection.
func (c *circuits) frame(*link, wire.Header, []byte, *transport.Batch) error { return nil }

// count gives the number of rows.
func (c *circuits) count() int { return 0 }
