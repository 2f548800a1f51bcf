// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// receiver takes what a router sends on its ctrl channel, on the channel's
// reading goroutine. Nothing here waits.
type receiver struct {
	c  *Controller
	ch *channel
}

// Frame takes a frame with a label: there are no circuits on ctrl channels, so
// it is skipped.
func (r receiver) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// Message takes a request or notice. Bodies that are not for a controller, or
// of a later version, are skipped.
func (r receiver) Message(m *wire.Message) error {
	c, ch := r.c, r.ch
	switch body := m.GetBody().(type) {
	case *wire.Message_State:
		return ch.reports.add(body.State)
	case *wire.Message_Loads:
		c.fabric.setLoads(ch, body.Loads)
	case *wire.Message_LabelGrant:
		c.circuits.labelGrant(ch, body.LabelGrant.GetLabels())
	case *wire.Message_RouteConnecting:
		c.circuits.routeConnecting(ch, m)
	case *wire.Message_RouteResult:
		c.circuits.routeResult(ch, m)
	case *wire.Message_DialRequest, *wire.Message_ResumeRequest, *wire.Message_ServicesRequest, *wire.Message_Cancel:
		r.ask(m)
	case *wire.Message_RelayOpen:
		ch.relays.open(body.RelayOpen)
	case *wire.Message_RelayData:
		ch.relays.data(body.RelayData)
	case *wire.Message_RelayClose:
		ch.relays.close(body.RelayClose)
	}
	return nil
}
