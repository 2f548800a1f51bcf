// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// grantedLabels is how many labels a router keeps granted.
const grantedLabels = 512

// willingRouter is a router that agrees to everything at once.
type willingRouter struct {
	net   *controllerNet
	at    int
	own   *pki.Credential
	conn  *transport.Conn
	label uint32
}

func (r *willingRouter) id() ginnel.RouterID { return ginnel.RouterID(r.own.Self.ID) }

// connect makes a ctrl channel and reports links: a ring with chords.
func (r *willingRouter) connect(ctx context.Context) error {
	n := r.net
	hello := &wire.RouterHello{EdgeAddress: "tls:" + string(r.id()) + ":443"}
	conn, err := dialController(ctx, n.network, r.own, hello)
	if err != nil {
		return err
	}
	r.conn = conn
	n.running.Go(func() { _ = conn.Run(ctx, r) })
	state := &wire.State{End: true}
	count := len(n.routers)
	seen := make(map[ginnel.LinkID]bool)
	for _, step := range []int{1, count - 1, 7, count - 7, 23, count - 23} {
		peer := n.routers[((r.at+step)%count+count)%count]
		id := ginnel.MakeLinkID(r.id(), peer.id(), "")
		if peer == r || seen[id] {
			continue
		}
		seen[id] = true
		state.Links = append(state.Links, &wire.LinkState{
			Id: string(id), Peer: string(peer.id()), Up: true, Measured: true,
			RttNs: int64(time.Millisecond) * int64(1+(r.at*peer.at)%17), StaticCost: int64(ginnel.Unit),
		})
	}
	if err := r.grant(grantedLabels); err != nil {
		return err
	}
	return conn.Notify(&wire.Message{Body: &wire.Message_State{State: state}})
}

func (r *willingRouter) grant(count int) error {
	g := &wire.LabelGrant{}
	for range count {
		r.label++
		g.Labels = append(g.Labels, r.label)
	}
	return r.conn.Notify(&wire.Message{Body: &wire.Message_LabelGrant{LabelGrant: g}})
}

// Frame implements transport.Receiver.
func (r *willingRouter) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// Message implements transport.Receiver: a Route is done, and its labels are
// granted anew.
func (r *willingRouter) Message(m *wire.Message) error {
	switch body := m.GetBody().(type) {
	case *wire.Message_Route:
		result := &wire.RouteResult{Circuit: body.Route.GetCircuit(), Generation: body.Route.GetGeneration()}
		if err := r.conn.Notify(&wire.Message{Body: &wire.Message_RouteResult{RouteResult: result}}); err != nil {
			return err
		}
		return r.grant(2)
	case *wire.Message_Services:
		var list wire.ServiceList
		if proto.Unmarshal(body.Services.GetPage().GetPayload(), &list) == nil && list.GetPage() == 0 {
			r.net.lists.Add(1)
			select {
			case r.net.listed <- struct{}{}:
			default:
			}
		}
	}
	return nil
}
