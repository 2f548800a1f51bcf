// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	defaultDialTimeout = 10 * time.Second
	// layer is what each layer waits longer than the one inside it.
	layer = 200 * time.Millisecond
	// busyPause is how long a dial waits when all controllers are busy and none
	// says until when.
	busyPause = time.Second
	// leastTry is how much time a dial must have left to be worth it: a controller
	// begins no attempt in less.
	leastTry = 500 * time.Millisecond
)

// DialOptions is what a dial asks for beside the service. The zero value is usable.
type DialOptions struct {
	// Instance asks for the terminator bound under this name.
	Instance string
	// Sticky is the token of an earlier connection (Conn.Sticky).
	Sticky string
	// Explain asks how the connection comes about (Conn.Explain).
	Explain bool
	// Source is the address of the program that dials, Destination what it asked
	// for, HOST:PORT; for the host to see, proven by nothing.
	Source, Destination string
	// Answered is for DialPacket, to services of questions and answers such as
	// DNS: the connection closes after so long without a datagram while as many
	// have come as went. 0: only the service's idle time-out ends it.
	Answered time.Duration

	protocol ginnel.Protocol // empty: TCP
}

// Dial gives a connection to a service. The error is a *ginnel.DialError. Without
// a deadline of ctx it gives up after Options.DialTimeout.
func (c *Client) Dial(ctx context.Context, service string) (net.Conn, error) {
	conn, err := c.DialService(ctx, ginnel.ServiceID(service), DialOptions{})
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// DialContext gives a connection to the service that address belongs to: a
// HOST:PORT out of the service's intercept, or the service's own name and any
// port. An address that belongs to none is INVALID_SERVICE. It fits
// http.Transport and its like; network is "tcp" or "udp". With "udp" the
// connection is a *PacketConn, so it fits net.Resolver, too.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := c.dialTime(ctx)
	defer cancel()
	service, err := c.services.resolve(ctx, network, address)
	if err != nil {
		return nil, failureOf(ctx, err)
	}
	opts := DialOptions{Destination: address}
	if strings.HasPrefix(network, "udp") {
		conn, err := c.DialPacket(ctx, service, opts)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	conn, err := c.DialService(ctx, service, opts)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dialTime gives ctx a deadline if it has none.
func (c *Client) dialTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cmp.Or(c.opts.DialTimeout, defaultDialTimeout))
}

// DialService is Dial with options.
func (c *Client) DialService(ctx context.Context, service ginnel.ServiceID, opts DialOptions) (*Conn, error) {
	if c.budget.Left() < LeastMemory { // before anybody is asked for anything
		return nil, c.full("this")
	}
	ctx, cancel := c.dialTime(ctx)
	defer cancel()
	endpoint.Deepen() // who dials signs and verifies, and reads and writes then
	d := newDialing(c, service, opts)
	stop := context.AfterFunc(c.life, cancel)
	defer stop()
	conn, err := d.run(ctx)
	if err != nil {
		d.client.Fail(err)
		if c.life.Err() != nil {
			return nil, coded(ginnel.Cancelled, "dial", errClientClosed)
		}
		return nil, d.whole(failureOf(ctx, err))
	}
	return conn, nil
}

// dialing is one dial. Its first flight of TLS is made once and may go out
// several times: only one answer is ever used.
type dialing struct {
	c       *Client
	service ginnel.ServiceID
	opts    DialOptions
	client  *endpoint.Client
	circuit *circuit // set before the stream is up
	begun   time.Time
	steps   []ginnel.Step

	lost map[ginnel.RouterID]bool // edge routers that do not help
	busy map[ginnel.ControllerID]bool
	deaf map[atRouter]bool // controllers that an edge router does not reach, or that see no path from it
	// blind are controllers that see no way to the service, and none what the first
	// of them said.
	blind map[ginnel.ControllerID]bool
	none  error
	last  error // what was tried in vain last; another one was asked after it
}

// atRouter is a controller as reached over an edge router.
type atRouter struct {
	router     ginnel.RouterID
	controller ginnel.ControllerID
}

func newDialing(c *Client, service ginnel.ServiceID, opts DialOptions) *dialing {
	d := &dialing{
		c: c, service: service, opts: opts, begun: time.Now(),
		lost: make(map[ginnel.RouterID]bool),
		busy: make(map[ginnel.ControllerID]bool),
		deaf: make(map[atRouter]bool), blind: make(map[ginnel.ControllerID]bool),
	}
	cfg := c.endConfig(func() *circuit { return d.circuit })
	d.client = endpoint.NewClient(cfg,
		pki.CircuitClientConfig(c.holder, time.Now, service, c.sessions, d.ticket),
		endpoint.Addr(c.self), endpoint.Addr(service))
	return d
}

// endConfig is that of the endpoint of a circuit which is known later.
func (c *Client) endConfig(of func() *circuit) endpoint.Config {
	return endpoint.Config{
		Budget: c.budget, Slabs: c.slabs, NewBatch: newBatch, Handshakes: &c.shaken,
		Wants: func(flow.Want) {
			if x := of(); x != nil {
				x.seek()
			}
		},
		Ended: func(error) {
			if x := of(); x != nil {
				x.ended()
			}
		},
	}
}

// ticket gives the ticket to those who check the host's certificate.
func (d *dialing) ticket() (*wire.Ticket, error) {
	if d.circuit == nil {
		return nil, errors.New("there is none")
	}
	return d.circuit.decided, nil
}

// step notes a step that began at start and ends now.
func (d *dialing) step(name string, start time.Time, format string, args ...any) {
	if d.opts.Explain {
		d.steps = append(d.steps, ginnel.Step{
			Name: name, Start: ginnel.Duration(start.Sub(d.begun)), Took: ginnel.Duration(time.Since(start)),
			Detail: fmt.Sprintf(format, args...),
		})
	}
}

// run dials until there is a connection or no way is left that may lead to one.
func (d *dialing) run(ctx context.Context) (*Conn, error) {
	hello, err := d.client.Hello()
	if err != nil {
		return nil, coded(ginnel.NotAuthenticated, "own end", err)
	}
	for {
		start := time.Now()
		e, err := d.c.edges.pick(ctx, d.wish())
		if err != nil {
			return nil, cmp.Or(d.none, d.last, err)
		}
		to, ok := d.audience(e)
		if !ok {
			if err := d.exhausted(ctx, e); err != nil {
				return nil, err
			}
			continue
		}
		d.step("edge router", start, "%s", e.id)
		conn, err := d.try(ctx, e, to, hello)
		switch {
		case err == nil:
			return conn, nil
		case d.again(ctx, e, ginnel.ControllerID(to.GetId()), err):
			d.last = err
		case d.none != nil && (errors.Is(err, ginnel.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)):
			return nil, d.none // which says more
		default:
			return nil, err
		}
	}
}

// whole gives why a dial failed, and when that is its time, what was heard before: it
// may have taken that time.
func (d *dialing) whole(err error) error {
	late, ok := errors.AsType[*ginnel.DialError](err)
	if !ok || late.Code != ginnel.DeadlineExceeded || d.last == nil {
		return err
	}
	told := *late
	told.Message += "; before that: " + d.last.Error()
	if before, ok := errors.AsType[*ginnel.DialError](d.last); ok && len(told.Attempts) == 0 {
		told.Attempts = before.Attempts
	}
	return &codedError{&told, err}
}

// wish is for an edge router that may help.
func (d *dialing) wish() wish {
	return wish{service: d.service, allowed: d.c.services.allowed(d.service), skip: d.lost}
}

// audience gives a controller that may help, to be asked over e.
func (d *dialing) audience(e *edge) (*wire.ControllerInfo, bool) {
	return d.c.audience(e, func(id ginnel.ControllerID) bool {
		return d.busy[id] || d.blind[id] || d.deaf[atRouter{e.id, id}]
	})
}

// exhausted is for an edge router whose controllers have all been asked, or that
// has none: another one is tried, or, when all controllers are busy, all again
// later. An error ends the dial.
func (d *dialing) exhausted(ctx context.Context, e *edge) error {
	if d.none != nil {
		d.lost[e.id] = true
		able := func(other *edge) bool { _, ok := d.audience(other); return ok }
		if slices.ContainsFunc(d.c.edges.ranked(d.wish()), able) {
			return nil
		}
		return d.none
	}
	if len(d.busy) == 0 {
		if d.last == nil {
			d.last = ginnel.Errorf(ginnel.ControllerUnavailable, "edge router %s has no controller", e.id)
		}
		d.lost[e.id] = true
		return nil
	}
	pause := busyPause
	if busy, ok := errors.AsType[*ginnel.DialError](d.last); ok && busy.RetryAfter > 0 {
		pause = time.Duration(busy.RetryAfter)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause+leastTry {
		return d.last // and not that the time is over: it is not why
	}
	clear(d.busy)
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return d.last
	}
}

// again says whether another edge router or controller may do better, and
// remembers who failed.
func (d *dialing) again(ctx context.Context, e *edge, controller ginnel.ControllerID, err error) bool {
	if ctx.Err() != nil || d.circuit != nil { // a circuit was routed: its end is used up
		return false
	}
	dial, ok := errors.AsType[*ginnel.DialError](err)
	switch {
	case !ok: // the edge connection is gone
		d.c.edges.faulted(e.id)
		d.lost[e.id] = true
	case dial.Code == ginnel.Busy:
		d.busy[controller] = true
	case dial.Code == ginnel.EdgeRouterUnavailable: // it takes no new circuits
		d.c.edges.faulted(e.id)
		d.lost[e.id] = true
	case dial.Code == ginnel.ControllerUnavailable:
		d.c.edges.faulted(e.id)
		d.deaf[atRouter{e.id, controller}] = true
	case dial.Code == ginnel.NoPath: // from there
		d.deaf[atRouter{e.id, controller}] = true
		d.none = cmp.Or(d.none, err)
	case seesNone(dial.Code):
		d.blind[controller] = true
		d.none = cmp.Or(d.none, err)
	default:
		return false
	}
	return true
}

// seesNone reports whether a code says what a controller knows of routers, each of
// which is connected to some controllers and not to others. What the store says all know.
func seesNone(code ginnel.Code) bool {
	return slices.Contains([]ginnel.Code{
		ginnel.NoTerminators, ginnel.NoOnlineTerminators, ginnel.NoTerminatorForInstance, ginnel.RouterResponseTimeout,
	}, code)
}

// try dials once over an edge router and a controller.
func (d *dialing) try(ctx context.Context, e *edge, to *wire.ControllerInfo, hello []byte) (*Conn, error) {
	start := time.Now()
	answer, signed, err := d.c.ask(ctx, e, to, question{
		domain: wire.DomainDial,
		body: func(a *wire.Audience) proto.Message {
			return &wire.Dial{
				Network: string(d.c.domain), Service: string(d.service), Router: string(e.id), Audience: a,
				DeadlineMs: uint32(within(ctx, layer).Milliseconds()),
				Instance:   d.opts.Instance, Sticky: d.opts.Sticky, Early: hello, Explain: d.opts.Explain,
				Source: d.opts.Source, Destination: d.opts.Destination,
				Protocol: string(d.opts.protocol),
			}
		},
		message: func(s *wire.Signed) *wire.Message {
			return &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: s}}}
		},
	})
	if err != nil {
		d.step("dial request", start, "controller %s: %s", to.GetId(), err)
		return nil, err
	}
	d.step("dial request", start, "controller %s", to.GetId())
	resp := answer.GetDialResponse()
	ticket, err := d.check(resp, signed)
	if err != nil {
		return nil, coded(ginnel.NotAuthenticated, "answer to the dial", err)
	}
	if asked, got := cmp.Or(d.opts.protocol, ginnel.TCP), pki.TicketProtocol(ticket); got != asked {
		return nil, &ginnel.DialError{
			Code: ginnel.RouterErrMisconfiguredTerminator, Circuit: ginnel.CircuitID(ticket.GetCircuit()),
			Message: fmt.Sprintf("the controller gave a circuit for %s in place of one for %s", got, asked),
		}
	}
	return d.up(ctx, e, resp, ticket)
}

// check verifies the ticket of an answer.
func (d *dialing) check(resp *wire.DialResponse, signed *wire.Signed) (*wire.Ticket, error) {
	ticket, err := pki.OpenTicket(resp.GetTicket(), d.c.holder.Load().CA, time.Now())
	if err != nil {
		return nil, err
	}
	if err := pki.CheckTicketForClient(ticket, d.c.domain, d.c.self, d.service, pki.DialHash(signed.GetPayload())); err != nil {
		return nil, err
	}
	if ticket.GetCircuit() != resp.GetCircuit() {
		return nil, fmt.Errorf("%w: circuit %q, not %q", pki.ErrTicket, ticket.GetCircuit(), resp.GetCircuit())
	}
	return ticket, nil
}

// up gives the circuit its path and finishes TLS.
func (d *dialing) up(ctx context.Context, e *edge, resp *wire.DialResponse, ticket *wire.Ticket) (*Conn, error) {
	start := time.Now()
	x := &circuit{
		c: d.c, id: ginnel.CircuitID(resp.GetCircuit()), role: flow.Client,
		ticket: resp.GetTicket(), decided: ticket, stream: d.client.Stream(),
	}
	if !d.c.circuits.add(x) {
		return nil, coded(ginnel.Cancelled, "circuit "+string(x.id), errClientClosed)
	}
	d.circuit = x
	r, h := x.take(e, resp.GetGeneration(), resp.GetArriveLabel(), resp.GetSendLabel())
	// The handshake waits for the host: a path that is gone by now must be known
	// as soon as the stream has it, which is when it sends for the first time.
	h.first = sync.OnceFunc(func() { d.c.spawn(func() { x.settle(r, h) }) })
	end, err := d.client.Up(ctx, resp.GetGeneration(), h, resp.GetEarly())
	if err != nil {
		x.ended()
		return nil, x.upError(ctx, err)
	}
	if d.opts.Explain {
		d.step("handshake", start, "%s, resumed %t", x.peer(), end.Resumed())
	}
	conn := &Conn{end: end, circuit: x, sticky: resp.GetSticky()}
	if d.opts.Explain {
		conn.explain = explained(resp, d.c.edges.snapshot(e.id), d.steps)
	}
	return conn, nil
}

// full says that Options.Memory of one program has no room for another connection.
func (c *Client) full(whose string) *ginnel.DialError {
	return ginnel.Errorf(ginnel.Busy, "the connections of %s program use up the memory that it gives them: %d KiB, of which each takes %d, and more while it carries much",
		whose, cmp.Or(c.opts.Memory, DefaultMemory)>>10, LeastMemory>>10)
}

// upError gives why a circuit did not come up although it was routed.
func (x *circuit) upError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failureOf(ctx, err)
	}
	for _, cause := range []error{x.stream.Err(), err} {
		if d, ok := errors.AsType[*ginnel.DialError](cause); ok && d.Code != ginnel.NotAuthenticated {
			return &ginnel.DialError{Code: d.Code, Message: d.Message, Circuit: x.id}
		}
	}
	if errors.Is(err, ginnel.Busy) {
		full := x.c.full("this")
		full.Circuit = x.id
		return full
	}
	return coded(ginnel.NotAuthenticated, "handshake with "+x.peer().String(), err)
}
