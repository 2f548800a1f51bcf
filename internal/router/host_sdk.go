// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// ask asks the hosting SDK to take the circuit, or a new path of it, and gives
// the host's first bytes. A host that is gone refuses at once.
func (rt *routing) ask(ctx context.Context, r *row) ([]byte, error) {
	early, err := rt.hostDial(ctx, r)
	switch {
	case rt.term == nil:
	case err == nil:
		rt.c.terms.behind(rt.term, r)
	case faulty(err.Code):
		rt.c.terms.failed(rt.term)
	}
	if err != nil {
		return nil, err
	}
	return early, nil
}

// faulty reports whether a failure says something about the terminator, and not
// about who dialed: no identity makes others avoid a host by dialing it in vain.
func faulty(code ginnel.Code) bool {
	return code != ginnel.Cancelled && code != ginnel.PeerReset && code != ginnel.RouterErrInvalidTerminator &&
		code != ginnel.NotAuthenticated && code != ginnel.StaleGeneration
}

func (rt *routing) hostDial(ctx context.Context, r *row) ([]byte, *ginnel.DialError) {
	e, conn := rt.route.GetEgress(), rt.sdk.conn
	deadline, _ := ctx.Deadline()
	dial := &wire.HostDial{
		Circuit: string(r.circuit), Generation: r.generation,
		Terminator: e.GetTerminator(), Service: e.GetService(), Ticket: e.GetTicket(), Early: e.GetEarly(),
		DeadlineMs: uint32(max(1, time.Until(deadline).Milliseconds())),
		SendLabel:  uint32(r.sides[1].arrive), ArriveLabel: uint32(r.sides[1].send),
		Resume: e.GetResume(),
	}
	var id uint64
	answer, err := conn.Exchange(ctx, &wire.Message{Body: &wire.Message_HostDial{HostDial: dial}}, func(n uint64) { id = n })
	if err != nil {
		return nil, rt.unasked(ctx, id, err)
	}
	failure := answer.GetFailure()
	if failure == nil {
		failure = answer.GetHostDialResult().GetFailure()
	}
	if failure != nil {
		return nil, failure.DialError()
	}
	early := answer.GetHostDialResult().GetEarly()
	if len(early) > wire.MaxEarlyBack {
		return nil, ginnel.Errorf(ginnel.RouterErrGeneric, "host %s answered with %d bytes, at most %d", rt.sdk.identity, len(early), wire.MaxEarlyBack)
	}
	return early, nil
}

// unasked says why a host gave no answer, and tells a host that is still there
// that none is waited for.
func (rt *routing) unasked(ctx context.Context, id uint64, err error) *ginnel.DialError {
	ec := rt.sdk
	if ctx.Err() == nil {
		return ginnel.Errorf(ginnel.RouterErrInvalidTerminator, "router %s: host %s is gone: %v", rt.c.r.id, ec.identity, err)
	}
	// Should it not be heard, the host's end finds its path unused.
	_ = ec.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: id}}})
	if errors.Is(ctx.Err(), context.Canceled) {
		return ginnel.Errorf(ginnel.Cancelled, "router %s: the set-up was taken back", rt.c.r.id)
	}
	return ginnel.Errorf(ginnel.RouterErrDialTimedOut, "router %s: host %s did not answer in time", rt.c.r.id, ec.identity)
}
