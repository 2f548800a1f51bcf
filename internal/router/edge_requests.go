// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxAsks bounds the requests of one SDK that wait for a controller.
	maxAsks = 1024
	// askSlack is how much longer than the controller this router waits.
	askSlack = 200 * time.Millisecond
	// askTime is how long a request that names no deadline has.
	askTime = 10 * time.Second
)

// asked is what a request says about itself. It is not verified: who lies here
// gets no answer out of it.
type asked struct {
	audience *wire.Audience
	time     time.Duration
}

// forward gives a request as it goes to a controller, with the identity that
// this router has verified.
func (ec *edgeConn) forward(m *wire.Message) (*wire.Message, asked, error) {
	identity := string(ec.identity)
	switch body := m.GetBody().(type) {
	case *wire.Message_DialRequest:
		d, q := body.DialRequest.GetDial(), new(wire.Dial)
		err := proto.Unmarshal(d.GetPayload(), q)
		r := &wire.DialRequest{Dial: d, Identity: identity}
		return &wire.Message{Body: &wire.Message_DialRequest{DialRequest: r}},
			asked{q.GetAudience(), remaining(q.GetDeadlineMs(), askTime)}, err
	case *wire.Message_ResumeRequest:
		d, q := body.ResumeRequest.GetResume(), new(wire.Resume)
		err := proto.Unmarshal(d.GetPayload(), q)
		r := &wire.ResumeRequest{Resume: d, Identity: identity}
		return &wire.Message{Body: &wire.Message_ResumeRequest{ResumeRequest: r}},
			asked{q.GetAudience(), remaining(q.GetDeadlineMs(), askTime)}, err
	default:
		d, q := m.GetServicesRequest().GetQuery(), new(wire.ServiceQuery)
		err := proto.Unmarshal(d.GetPayload(), q)
		r := &wire.ServicesRequest{Query: d, Identity: identity, Edge: ec.number}
		return &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: r}}, asked{q.GetAudience(), askTime}, err
	}
}

// request passes a request on to the controller that it was signed for, and the
// answer back, on a goroutine of its own. What cannot be passed on is answered
// at once.
func (ec *edgeConn) request(m *wire.Message) {
	r, id := ec.e.r, m.GetId()
	out, want, err := ec.forward(m)
	if err != nil {
		ec.refuse(id, ginnel.Errorf(ginnel.NotAuthenticated, "router %s: the request cannot be read", r.id))
		return
	}
	ch := r.ctrl.to(ginnel.ControllerID(want.audience.GetController()))
	if ch == nil {
		ec.refuse(id, ginnel.Errorf(ginnel.ControllerUnavailable, "router %s has no ctrl channel to controller %q", r.id, want.audience.GetController()))
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, want.time+askSlack)
	if err := ec.remember(id, cancel); err != nil {
		cancel()
		ec.refuse(id, err)
		return
	}
	r.running.Go(func() {
		defer ec.forget(id)
		ec.pass(ctx, ch, out, id)
	})
}

// pass is the goroutine of a request.
func (ec *edgeConn) pass(ctx context.Context, ch *ctrlChannel, out *wire.Message, id uint64) {
	var key askKey
	answer, err := ch.conn.Exchange(ctx, out, func(n uint64) {
		key = askKey{ch.number, n}
		ec.e.ask(key, ec)
	})
	if key.request != 0 {
		defer ec.e.answered(key)
	}
	if err != nil {
		ec.unanswered(ctx, ch, key.request, id, err)
		return
	}
	if d := answer.GetDialResponse(); d != nil && !ec.label(d) {
		ec.refuse(id, ginnel.Errorf(ginnel.PeerDetached, "router %s: the path is gone already", ec.e.r.id))
		return
	}
	if err := ec.conn.Reply(id, answer); err != nil {
		ec.e.r.circuits.post(abandoned{key})
	}
}

// label adds the labels that this router picked for the circuit.
func (ec *edgeConn) label(d *wire.DialResponse) bool {
	r := ec.e.r.circuits.rowOf(d.GetCircuit(), d.GetGeneration())
	if r == nil || r.role == nil || !r.role.client || r.sides[0].edge != ec.peer {
		return false
	}
	d.SendLabel, d.ArriveLabel = uint32(r.sides[0].arrive), uint32(r.sides[0].send)
	return true
}

// unanswered answers a request that a controller did not, and tells the
// controller that nobody waits.
func (ec *edgeConn) unanswered(ctx context.Context, ch *ctrlChannel, request, id uint64, err error) {
	self, controller := ec.e.r.id, ch.controller
	if errors.Is(err, transport.ErrQueueFull) {
		busy := ginnel.Errorf(ginnel.Busy, "router %s: too many requests wait for controller %s", self, controller)
		busy.RetryAfter = ginnel.Duration(time.Second)
		ec.refuse(id, busy)
		return
	}
	if ctx.Err() == nil {
		ec.refuse(id, ginnel.Errorf(ginnel.ControllerUnavailable, "router %s: controller %s: %v", self, controller, err))
		return
	}
	// What the controller has just answered it will not take back.
	ec.e.r.circuits.post(abandoned{askKey{ch.number, request}})
	// A channel that does not take it ends the set-up as well.
	_ = ch.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: request}}})
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ec.refuse(id, ginnel.Errorf(ginnel.DeadlineExceeded, "router %s: controller %s did not answer in time", self, controller))
		return
	}
	ec.refuse(id, ginnel.Errorf(ginnel.Cancelled, "router %s: the request was taken back", self))
}

// refuse answers a request by a failure.
func (ec *edgeConn) refuse(id uint64, err *ginnel.DialError) {
	_ = ec.conn.ReplyError(id, err) // the connection that does not take it ends by itself
}

// remember notes a request that waits.
func (ec *edgeConn) remember(id uint64, cancel context.CancelFunc) *ginnel.DialError {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	switch {
	case ec.asks == nil:
		return ginnel.Errorf(ginnel.Cancelled, "the edge connection has ended")
	case len(ec.asks) >= maxAsks:
		busy := ginnel.Errorf(ginnel.Busy, "router %s: %d requests of this connection wait", ec.e.r.id, len(ec.asks))
		busy.RetryAfter = ginnel.Duration(time.Second)
		return busy
	case ec.asks[id] != nil || id == 0:
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s: request id %d is in use", ec.e.r.id, id)
	}
	ec.asks[id] = cancel
	return nil
}

func (ec *edgeConn) forget(id uint64) {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if cancel := ec.asks[id]; cancel != nil {
		cancel()
		delete(ec.asks, id)
	}
}

// cancel ends a request that the SDK no longer waits for.
func (ec *edgeConn) cancel(id uint64) {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	if cancel := ec.asks[id]; cancel != nil {
		cancel()
	}
}

// cancelAll ends all requests: the connection has ended.
func (ec *edgeConn) cancelAll() {
	ec.mu.Lock()
	defer ec.mu.Unlock()
	for _, cancel := range ec.asks {
		cancel()
	}
	ec.asks = nil
}

// services hands a page of a service list to the SDK that it is for.
func (c *circuits) services(s *wire.Services) {
	if ec := c.r.edge.numbered(s.GetEdge()); ec != nil {
		_ = ec.conn.Notify(&wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: s.GetPage()}}})
	}
}

// hint tells the client of a circuit that a better path exists.
func (c *circuits) hint(h *wire.Hint) {
	peer := c.endpoints.clientPeer(ginnel.CircuitID(h.GetCircuit()))
	if ec := c.r.edge.at(peer); ec != nil {
		_ = ec.conn.Notify(&wire.Message{Body: &wire.Message_Hint{Hint: h}})
	}
}
