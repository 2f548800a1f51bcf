// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/health"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	defaultMaxRouters = 3
	defaultBacklog    = 1024
	bindTimeout       = 5 * time.Second
	bindPause         = time.Second // after a bind that failed
)

// ListenOptions is how a service is hosted. The zero value is usable.
type ListenOptions struct {
	// Cost of this host, added to that of the path to it.
	Cost ginnel.Cost
	// Precedence of this host: required, default or failed; empty: default.
	Precedence string
	// Instance is a name that a dial can ask for.
	Instance string
	// MaxRouters is at how many edge routers the service is bound at once. 0: 3.
	MaxRouters int
	// Check, if not nil, makes the Listener check what it serves. While that fails
	// its terminators count as failed: nobody gets them who can have another.
	Check *HealthCheck
	// Backlog bounds the connections that are being set up or were not accepted
	// yet; more are refused at once. 0: 1024.
	Backlog int
	// Connect, if not nil, is called for each connection before the dialing end
	// has its answer, and within the time that the dial has left: what it cannot
	// have, the dial fails with. A *ginnel.DialError goes to the dialing end as it
	// is, another error as ROUTER_ERR_REJECTED_BY_APPLICATION. What it gives is had
	// by Conn.Backend; it is closed here if the connection does not come about.
	Connect func(ctx context.Context, in Incoming) (io.Closer, error)
	// Answered is for ListenPacket, as DialOptions.Answered is for DialPacket.
	Answered time.Duration

	protocol ginnel.Protocol // empty: TCP
}

// HealthCheck is how a Listener finds out whether what it serves is well. It
// checks from where the Listener is.
type HealthCheck struct {
	// Check says how; what is 0 has its default.
	ginnel.Check
	// Address that is checked: tcp:HOST:PORT.
	Address ginnel.Address
	// Dial opens the connections of the checks; nil: as this machine does. It may
	// be called from any goroutine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Incoming is what is known of a connection that a service is dialed with.
type Incoming struct {
	Service    ginnel.ServiceID
	Circuit    ginnel.CircuitID
	Client     ginnel.IdentityID // as its ticket says; its certificate is checked against that
	Terminator ginnel.TerminatorID
	// Source and Destination are what the client says of its own program.
	Source, Destination string
}

// Listener hosts a service: a net.Listener whose connections come through the
// network. It stays bound while edge routers come and go.
type Listener struct {
	c       *Client
	service ginnel.ServiceID
	opts    ListenOptions

	precedence ginnel.Precedence

	accept chan *Conn
	places chan struct{} // taken by connections that were not accepted yet
	life   context.Context
	end    context.CancelFunc
	bound  chan struct{} // closed at the first bind
	found  chan struct{} // the health check has found something else

	mu        sync.Mutex
	binds     map[ginnel.RouterID]*bind
	unhealthy bool
}

// bind is the terminator of a listener at one edge router.
type bind struct {
	body *wire.Bind
	id   ginnel.TerminatorID
	edge *edge // where it is bound; nil or gone: to be bound anew
	leaf string
	// revoked is when the edge router let go of it, because the identity may not host
	// the service; zero: it did not. It is bound anew once that is allowed.
	revoked time.Time
	// unhealthy is what the edge router was told of the health.
	unhealthy bool
}

// Listen hosts a service. It gives a Listener at once and binds as soon and as
// long as edge routers are connected; whether the identity may host the service
// the controllers decide, which can change.
func (c *Client) Listen(service string, opts ListenOptions) (*Listener, error) {
	if err := ginnel.CheckName(service); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	precedence, err := ginnel.ParsePrecedence(opts.Precedence)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	check, err := opts.Check.complete()
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	opts.Check = check
	l := &Listener{
		c: c, service: ginnel.ServiceID(service), opts: opts, precedence: precedence,
		accept: make(chan *Conn, cmp.Or(opts.Backlog, defaultBacklog)),
		places: make(chan struct{}, cmp.Or(opts.Backlog, defaultBacklog)),
		bound:  make(chan struct{}),
		found:  make(chan struct{}, 1),
		binds:  make(map[ginnel.RouterID]*bind),
	}
	l.life, l.end = context.WithCancel(c.life)
	if !c.hosts.add(l) || !c.spawn(l.run) || check != nil && !c.spawn(l.check) {
		l.end()
		c.hosts.remove(l)
		return nil, fmt.Errorf("listen: %w", errClientClosed)
	}
	return l, nil
}

// Accept gives the next connection; net.ErrClosed once the Listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// AcceptConn is Accept for those who want a *Conn.
func (l *Listener) AcceptConn() (*Conn, error) {
	if l.life.Err() != nil {
		return nil, l.closedError()
	}
	select {
	case conn := <-l.accept:
		<-l.places
		return conn, nil
	case <-l.life.Done():
		return nil, l.closedError()
	}
}

func (l *Listener) closedError() error {
	return &net.OpError{Op: "accept", Net: "ginnel", Addr: l.Addr(), Err: net.ErrClosed}
}

// Close stops listening: dials are refused from now on. Connections that were
// accepted go on, those that were not are reset.
func (l *Listener) Close() error {
	l.end()
	l.c.hosts.remove(l)
	for {
		select {
		case conn := <-l.accept:
			<-l.places
			conn.discard()
		default:
			return nil
		}
	}
}

// Addr names the service.
func (l *Listener) Addr() net.Addr { return endpoint.Addr(l.service) }

// Bound is closed once the service is bound at an edge router for the first time.
func (l *Listener) Bound() <-chan struct{} { return l.bound }

// Routers gives the edge routers at which the service is bound now.
func (l *Listener) Routers() []ginnel.RouterID {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []ginnel.RouterID
	for id, b := range l.binds {
		if b.edge != nil && !b.edge.isGone() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// run keeps the service bound; the one goroutine that binds and unbinds.
func (l *Listener) run() {
	defer l.unbindAll()
	for l.life.Err() == nil {
		changed := l.c.edges.watch()
		missing, failed := l.missing()
		for _, e := range missing {
			if err := l.bind(e); err != nil && l.life.Err() == nil {
				l.c.log.Warn("bind failed", "service", string(l.service), "router", string(e.id), "err", err)
				failed = true
			}
		}
		l.wait(changed, failed)
	}
}

// wait waits for a change of edge routers, services, certificate or health; after a
// failure only for a while.
func (l *Listener) wait(changed <-chan struct{}, failed bool) {
	var again <-chan time.Time
	if failed {
		timer := time.NewTimer(bindPause)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-changed:
	case <-l.found:
	case <-again:
	case <-l.life.Done():
	}
}

// complete gives a check with all its values, or says what is wrong with it.
func (h *HealthCheck) complete() (*HealthCheck, error) {
	if h == nil {
		return nil, nil
	}
	whole := *h
	if whole.Check = h.WithDefaults(); whole.Dial == nil {
		whole.Dial = new(net.Dialer).DialContext
	}
	if err := whole.Validate(); err != nil {
		return nil, err
	}
	if _, err := ginnel.ParseAddress(string(h.Address), false, "tcp"); err != nil {
		return nil, fmt.Errorf("check: %w", err)
	}
	return &whole, nil
}

// check is the goroutine of the health check.
func (l *Listener) check() {
	h := l.opts.Check
	checker := health.Checker{
		Dial:   func(ctx context.Context, hostport string) (net.Conn, error) { return h.Dial(ctx, "tcp", hostport) },
		Jitter: rand.Float64,
	}
	checker.Run(l.life, h.Address, h.Check, func(unhealthy bool, err error) {
		if unhealthy {
			l.c.log.Warn("what is hosted is unhealthy", "service", string(l.service), "address", string(h.Address), "err", err)
		} else {
			l.c.log.Info("what is hosted is healthy again", "service", string(l.service), "address", string(h.Address))
		}
		l.mu.Lock()
		l.unhealthy = unhealthy
		l.mu.Unlock()
		select {
		case l.found <- struct{}{}:
		default:
		}
	})
}

// revoked takes that an edge router has let go of a bind. What is allowed again at
// once, as far as is known here, is bound again a moment later.
func (l *Listener) revoked(e *edge, id ginnel.TerminatorID) {
	l.mu.Lock()
	if b := l.binds[e.id]; b != nil && b.id == id {
		b.edge, b.revoked = nil, time.Now()
	}
	l.mu.Unlock()
	l.c.log.Info("bind revoked", "service", string(l.service), "router", string(e.id), "terminator", string(id))
	l.c.edges.moved()
}

// missing gives the connections to bind at: the places that are left, to the best
// routers that the service is not bound at. Binds that hold are not moved. Soon says
// that there are more in a moment.
func (l *Listener) missing() (all []*edge, soon bool) {
	service := l.c.services.find(l.service)
	able := l.c.edges.ranked(wish{allowed: service.Routers})
	leaf := string(l.c.holder.Load().Leaf.Raw)
	l.mu.Lock()
	defer l.mu.Unlock()
	left := cmp.Or(l.opts.MaxRouters, defaultMaxRouters)
	var again, fresh []*edge
	for _, e := range able {
		switch b := l.binds[e.id]; {
		case b != nil && b.edge == e && b.leaf == leaf && b.unhealthy == l.unhealthy:
			left--
		case b != nil && !b.revoked.IsZero() && (!service.CanBind || time.Since(b.revoked) < bindPause):
			left--
			soon = soon || service.CanBind
		case b != nil: // its connection, our certificate or our health is another one
			again = append(again, e)
		default:
			fresh = append(fresh, e)
		}
	}
	all = append(again, fresh...)
	return all[:max(0, min(left, len(all)))], soon
}

// bind binds at an edge router. The terminator is known here before it is there:
// a dial may come before the answer.
func (l *Listener) bind(e *edge) error {
	l.mu.Lock()
	b, unhealthy := l.binds[e.id], l.unhealthy
	l.mu.Unlock()
	if b == nil {
		b = &bind{body: &wire.Bind{
			Network: string(l.c.domain), Service: string(l.service), Router: string(e.id),
			Instance: l.opts.Instance, Cost: int64(l.opts.Cost), Precedence: uint32(l.precedence), Nonce: newNonce(),
			Protocol: string(l.opts.protocol),
		}}
	}
	leaf := string(l.c.holder.Load().Leaf.Raw)
	signed, err := l.c.sign(wire.DomainBind, b.body)
	if err != nil {
		return err
	}
	b.id = wire.BindTerminatorID(b.body, l.c.self, signed.GetPayload())
	l.mu.Lock()
	l.binds[e.id] = b
	l.mu.Unlock()
	l.c.hosts.hold(b.id, l)
	ctx, cancel := context.WithTimeout(l.life, bindTimeout)
	defer cancel()
	request := &wire.BindRequest{Bind: signed, Checked: l.opts.Check != nil, Unhealthy: unhealthy}
	answer, err := e.conn.Request(ctx, &wire.Message{Body: &wire.Message_BindRequest{BindRequest: request}})
	if err != nil {
		return err
	}
	if got := answer.GetBindResponse().GetTerminator(); got != string(b.id) {
		return fmt.Errorf("edge router %s bound terminator %q, want %q", e.id, got, b.id)
	}
	l.mu.Lock()
	b.edge, b.leaf, b.unhealthy, b.revoked = e, leaf, unhealthy, time.Time{}
	l.mu.Unlock()
	select {
	case <-l.bound:
	default:
		close(l.bound)
	}
	l.c.log.Info("bound", "service", string(l.service), "router", string(e.id), "terminator", string(b.id))
	return nil
}

// unbindAll tells every edge router that may hold a bind. A connection that is
// gone has taken its binds along.
func (l *Listener) unbindAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.c.edges.ranked(wish{}) {
		if b := l.binds[e.id]; b != nil {
			_ = e.conn.Notify(&wire.Message{Body: &wire.Message_Unbind{Unbind: &wire.Unbind{Terminator: string(b.id)}}})
		}
	}
	clear(l.binds)
}
