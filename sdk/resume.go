// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// seekPause lies between two requests for the same circuit. It does not
	// grow: the flow gives up after a minute.
	seekPause = 250 * time.Millisecond
	// seekTimeout bounds one request.
	seekTimeout = 3 * time.Second
	// attachAgain is when an attached host attaches once more, should the first
	// have got lost with a controller.
	attachAgain = 5 * time.Second
)

// seek gets the stream what it wants from outside, until it wants nothing: a
// client another path, a host that lost its edge router another one. One
// goroutine a circuit does it.
func (x *circuit) seek() {
	x.mu.Lock()
	busy := x.seeking
	x.seeking = true
	x.mu.Unlock()
	if busy {
		return
	}
	if !x.c.spawn(x.seeker) {
		x.stream.Reset(ginnel.Cancelled, "client is closed")
	}
}

func (x *circuit) seeker() {
	for x.wants() {
		changed := x.c.edges.watch()
		err := x.sought()
		x.tell(err)
		if code, final := finalCode(err); final {
			x.c.log.Info("circuit ends", "circuit", string(x.id), "err", err)
			x.stream.Reset(code, err.Error())
			return
		}
		if err != nil {
			x.c.log.Debug("circuit is without a path", "circuit", string(x.id), "err", err)
		}
		x.pause(changed)
	}
}

// tell notes why the circuit is still without a path; nil: it has one.
func (x *circuit) tell(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.without = err
}

// wants reports whether the seeker goes on; when not, the next one may begin.
func (x *circuit) wants() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seeking = x.stream.Wanted() != flow.WantNothing && x.c.life.Err() == nil
	return x.seeking
}

// pause waits before the next request: for a moment, or until edge routers changed.
func (x *circuit) pause(changed <-chan struct{}) {
	timer := time.NewTimer(seekPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-x.stream.Done():
	case <-x.c.life.Done():
	}
}

func (x *circuit) sought() error {
	ctx, cancel := context.WithTimeout(x.c.life, seekTimeout)
	defer cancel()
	e, err := x.edge(ctx)
	if err != nil {
		return err
	}
	if x.role == flow.Client {
		return x.resume(ctx, e)
	}
	if err := x.attach(ctx, e); err != nil {
		return err
	}
	x.attached(e)
	return nil
}

// edge gives the edge connection to look for a path over: that of a router from which
// there has not just been none, if there is one.
func (x *circuit) edge(ctx context.Context) (*edge, error) {
	x.mu.Lock()
	skip := maps.Clone(x.pathless)
	x.mu.Unlock()
	if len(skip) > 0 {
		if others := x.c.edges.ranked(wish{skip: skip}); len(others) > 0 {
			return others[0], nil
		}
		x.forgive()
	}
	return x.c.edges.pick(ctx, wish{})
}

// forgive has all edge routers asked again.
func (x *circuit) forgive() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.pathless)
}

// finalCode says which errors no other path helps against, and what the circuit ends
// with. PEER_RESET says who hosted the circuit: there is no other end any more. A
// controller that does not know the identity yet, or any longer for sure, says BUSY.
func finalCode(err error) (ginnel.Code, bool) {
	d, ok := errors.AsType[*ginnel.DialError](err)
	if !ok || errors.Is(err, errAudience) {
		return 0, false
	}
	if d.Code == ginnel.PeerReset {
		return d.Code, true
	}
	final := []ginnel.Code{ginnel.NotAuthenticated, ginnel.NotAuthorized, ginnel.InvalidService, ginnel.Revoked}
	return ginnel.Revoked, slices.Contains(final, d.Code)
}

// resume asks a controller for another path, over e, and gives it to the stream.
func (x *circuit) resume(ctx context.Context, e *edge) error {
	c := x.c
	to, ok := x.audience(e)
	if !ok {
		return ginnel.Errorf(ginnel.ControllerUnavailable, "edge router %s has no controller", e.id)
	}
	answer, _, err := c.ask(ctx, e, to, question{
		domain: wire.DomainResume,
		body: func(a *wire.Audience) proto.Message {
			return &wire.Resume{
				Ticket: x.ticket, Number: x.nextResume(), Router: string(e.id), Audience: a,
				DeadlineMs: uint32(within(ctx, layer).Milliseconds()),
			}
		},
		message: func(s *wire.Signed) *wire.Message {
			return &wire.Message{Body: &wire.Message_ResumeRequest{ResumeRequest: &wire.ResumeRequest{Resume: s}}}
		},
	})
	if err != nil {
		x.shun(e, ginnel.ControllerID(to.GetId()), err) // another one may see a way
		return err
	}
	x.forgive()
	resp := answer.GetDialResponse()
	return x.newPath(e, resp.GetGeneration(), resp.GetArriveLabel(), resp.GetSendLabel())
}

// audience gives the controller to ask for a path over e: one that has not just
// failed to give one, if there is one.
func (x *circuit) audience(e *edge) (*wire.ControllerInfo, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if to, ok := x.c.audience(e, func(id ginnel.ControllerID) bool { return x.busy[id] }); ok {
		return to, true
	}
	clear(x.busy)
	return x.c.audience(e, nil)
}

// shun notes a controller that gave no path, and an edge router that has none.
func (x *circuit) shun(e *edge, id ginnel.ControllerID, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.busy == nil {
		x.busy, x.pathless = make(map[ginnel.ControllerID]bool), make(map[ginnel.RouterID]bool)
	}
	x.busy[id] = true
	if errors.Is(err, ginnel.NoPath) {
		x.pathless[e.id] = true
	}
}

func (x *circuit) nextResume() uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resumes++
	return x.resumes
}

// newPath gives the stream a path. Of two that cross, the lower generation is
// dropped.
func (x *circuit) newPath(e *edge, generation, arrive, send uint32) error {
	r, h := x.take(e, generation, arrive, send)
	if err := x.stream.NewPath(generation, h); err != nil {
		x.drop(func(other *row) bool { return other == r })
		return err
	}
	x.settle(r, h)
	return nil
}

// edgeOf gives the edge connection of a generation's path; nil: there is none, or it
// is gone.
func (x *circuit) edgeOf(generation uint32) *edge {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range x.rows {
		if r.generation == generation && !r.edge.isGone() {
			return r.edge
		}
	}
	return nil
}

// better asks once for a better path than that of a generation, on purpose: from
// the same edge router, for which the controller has found that there is one.
func (x *circuit) better(generation uint32) {
	x.mu.Lock()
	busy := x.seeking
	x.seeking = true
	x.mu.Unlock()
	if busy {
		return
	}
	x.c.spawn(func() {
		ctx, cancel := context.WithTimeout(x.c.life, seekTimeout)
		defer cancel()
		var err error
		if e := x.edgeOf(generation); e != nil && x.stream.Generation() == generation {
			err = x.resume(ctx, e)
		}
		if err != nil {
			x.c.log.Info("circuit stays on its path", "circuit", string(x.id), "err", err)
		}
		x.seeker() // for what it came to want meanwhile
	})
}

// attach tells the controllers, over e, that the circuit's host is found there.
func (x *circuit) attach(ctx context.Context, e *edge) error {
	x.mu.Lock()
	x.attaches++
	sequence := x.attaches
	x.mu.Unlock()
	signed, err := x.c.sign(wire.DomainAttach, &wire.Attach{Ticket: x.ticket, Router: string(e.id), Sequence: sequence})
	if err != nil {
		return err
	}
	_, err = e.conn.Request(ctx, &wire.Message{Body: &wire.Message_AttachRequest{
		AttachRequest: &wire.AttachRequest{Attach: signed},
	}})
	return err
}

// attached waits while the client may come over e, or for a while.
func (x *circuit) attached(e *edge) {
	timer := time.NewTimer(attachAgain)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.conn.Done():
	case <-x.stream.Done():
	case <-x.c.life.Done():
	}
}
