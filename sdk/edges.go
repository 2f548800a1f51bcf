// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/dialloop"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxRedial is the longest pause between two dials of an edge router.
	maxRedial = 5 * time.Second
	// redialGrace is how long a dial waits for edge routers whose connections
	// were all lost a moment ago.
	redialGrace = 500 * time.Millisecond
	// parkTime is how long the paths over a lost edge connection can come back.
	parkTime = 60 * time.Second
	// failedFor is how long an edge router ranks behind after a dial through it
	// failed by its fault.
	failedFor = 10 * time.Second
)

// errNotWanted is why a connection is closed that came up too late.
var errNotWanted = errors.New("connection is not wanted any more")

// errUnwelcome is why a router has ended a connection.
var errUnwelcome = errors.New("the identity is not allowed there any more")

// edges keeps connections to all edge routers. It is the dial loop's Source.
type edges struct {
	c        *Client
	loop     *dialloop.Loop
	registry *transport.Registry[ginnel.RouterID]

	mu      sync.Mutex
	routers map[ginnel.RouterID]*edgeRouter
	dialed  map[ginnel.RouterID]*edge // the last connection that was made
	changed chan struct{}             // closed at the next change of what pick looks at
	// chosen is the edge router used last for a service; "" is for no service.
	chosen map[ginnel.ServiceID]ginnel.RouterID
	// pickOne chooses among near-equal edge routers; nil: the best is taken.
	pickOne func(n int) int
	barred  bool // every edge router has said that the identity is not allowed, and it was told
}

// edgeRouter is an edge router of the list.
type edgeRouter struct {
	address  ginnel.Address
	live     *edge           // nil: not connected
	parked   map[uint32]*row // of the connection lost last, to the same life of the router
	boot     string          // that life
	lostAt   time.Time
	failed   bool  // a dial has failed since it was listed or lost
	err      error // why the last one did
	failedAt time.Time
}

func newEdges(c *Client, list []pki.EdgeRouter) *edges {
	e := &edges{
		c: c, registry: transport.NewRegistry[ginnel.RouterID](0),
		routers: make(map[ginnel.RouterID]*edgeRouter),
		dialed:  make(map[ginnel.RouterID]*edge),
		changed: make(chan struct{}),
		chosen:  make(map[ginnel.ServiceID]ginnel.RouterID),
	}
	if c.opts.Spread {
		e.pickOne = rand.IntN
	}
	cfg := dialer.Defaults()
	cfg.MaxRetryInterval, cfg.DialDelay = maxRedial, 0
	e.loop = dialloop.New(dialloop.Options{
		Config:  cfg,
		Random:  rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		Source:  e,
		Dial:    e.dial,
		Close:   e.close,
		Observe: e.observe,
	})
	e.set(list)
	return e
}

// Addresses gives where an edge router is dialed.
func (e *edges) Addresses(key dialer.Key) []ginnel.Address {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.routers[ginnel.RouterID(key)]; r != nil {
		return []ginnel.Address{r.address}
	}
	return nil
}

// set replaces the list of edge routers; connections to those that stay go on.
func (e *edges) set(list []pki.EdgeRouter) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old := maps.Clone(e.routers)
	for _, item := range list {
		r := e.routers[item.ID]
		delete(old, item.ID)
		switch {
		case r == nil:
			e.routers[item.ID] = &edgeRouter{address: item.Address}
		case r.address != item.Address:
			r.address, r.failed = item.Address, false
		default:
			continue
		}
		changed = true
		e.loop.Send(dialer.Updated{Key: dialer.Key(item.ID)})
	}
	for id, r := range old {
		changed = true
		delete(e.routers, id)
		e.loop.Send(dialer.Deleted{Key: dialer.Key(id)})
		if r.live != nil {
			r.live.conn.Close(fmt.Errorf("edge router %s is not listed any more", id))
		}
	}
	if changed {
		e.movedLocked()
	}
	return changed
}

// list gives the edge routers as an identity file keeps them.
func (e *edges) list() []pki.EdgeRouter {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []pki.EdgeRouter{}
	for _, id := range slices.Sorted(maps.Keys(e.routers)) {
		list = append(list, pki.EdgeRouter{ID: id, Address: e.routers[id].address})
	}
	return list
}

// snapshot gives the edge routers for people; chosen marks one.
func (e *edges) snapshot(chosen ginnel.RouterID) []EdgeRouter {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []EdgeRouter{}
	for _, id := range slices.Sorted(maps.Keys(e.routers)) {
		r := e.routers[id]
		item := EdgeRouter{ID: id, Address: r.address, Connected: r.live != nil, Chosen: id == chosen}
		if r.live != nil {
			item.RTT = ginnel.Duration(r.live.smoothed.Load())
		} else if r.err != nil {
			item.Error = r.err.Error()
		}
		list = append(list, item)
	}
	return list
}

// dial makes a connection to an edge router; on a goroutine of the dial loop.
func (e *edges) dial(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
	c, id := e.c, ginnel.RouterID(key)
	want := ginnel.Peer{Role: ginnel.RoleRouter, ID: string(id)}
	conn, err := transport.DialFramed(ctx, c.network, address.HostPort(),
		pki.ClientConfig(c.holder, time.Now, want, wire.ALPNEdge), transport.IdentifyBy(c.holder))
	if err != nil {
		return 0, err
	}
	edge := newEdge(c, id, conn)
	conn.SetProbing(transport.Probing{RTT: edge.sample, Heard: edge.hears})
	accepted, err := conn.Handshake(ctx, transport.Greeting{
		Hello: &wire.Hello{Network: string(c.domain), Boot: c.process, Process: c.process},
		Self:  string(c.self),
	})
	if err != nil {
		return 0, e.refused(id, err)
	}
	edge.boot, edge.number = accepted.Hello.GetBoot(), accepted.Connection
	edge.controllers, edge.heard = accepted.Verdict.GetControllers(), time.Now()
	if !e.registry.Adopt(id, edge.boot, edge.number, conn) {
		return 0, fmt.Errorf("edge router %s: %w", id, conn.Err())
	}
	e.mu.Lock()
	e.dialed[id] = edge
	e.mu.Unlock()
	if !c.spawn(func() { e.serve(edge) }) {
		conn.Close(errClientClosed)
		return 0, errClientClosed
	}
	return edge.number, nil
}

// refused tells the dial loop of a DUPLICATE whose survivor this end holds.
func (e *edges) refused(id ginnel.RouterID, err error) error {
	survivor, ok := transport.IsDuplicate(err)
	if !ok {
		return err
	}
	if _, number := e.registry.Get(id); number == survivor {
		return &dialloop.DuplicateError{Conn: survivor}
	}
	return fmt.Errorf("identity is in use elsewhere: %w", err)
}

// serve is the goroutine of a connection: its reader.
func (e *edges) serve(edge *edge) {
	if !e.up(edge) {
		edge.conn.Close(fmt.Errorf("edge router %s is not listed any more", edge.id))
	}
	err := edge.conn.Run(e.c.life, edge)
	close(edge.finished)
	e.down(edge, err)
	select {
	case <-edge.settled: // a loss counts only once the loop knows what was lost
	case <-e.c.life.Done():
	}
	e.loop.Send(dialer.ConnLost{Key: dialer.Key(edge.id), Conn: edge.number})
}

// up makes a connection the one of its router. Paths of the connection before
// go over it if it leads to the same life of the router. False: not listed.
func (e *edges) up(edge *edge) bool {
	e.mu.Lock()
	r := e.routers[edge.id]
	if r == nil {
		e.mu.Unlock()
		return false
	}
	old := r.live
	e.mu.Unlock()
	if old != nil { // closed by Adopt: no frame of it comes after this
		<-old.finished
		e.down(old, old.conn.Err())
	}
	e.mu.Lock()
	parked := r.parked
	if r.boot != edge.boot || time.Since(r.lostAt) > parkTime {
		parked = nil
	}
	r.live, r.parked, r.boot, r.failed, r.err = edge, nil, edge.boot, false, nil
	e.movedLocked()
	e.mu.Unlock()
	e.c.log.Info("edge router connected", "router", string(edge.id), "paths", len(parked))
	for _, row := range parked {
		row.circuit.connBack(row, edge)
	}
	return true
}

// down ends a connection for its circuits; done again it changes nothing.
func (e *edges) down(edge *edge, cause error) {
	rows := edge.detach()
	if rows == nil {
		return
	}
	if edge.unwelcome.Load() {
		cause = errUnwelcome
	}
	e.mu.Lock()
	if r := e.routers[edge.id]; r != nil && r.live == edge {
		r.live, r.parked, r.lostAt, r.failed, r.err = nil, rows, time.Now(), false, cause
	}
	// Their dials go on: what was taken may be given back. So it is told once.
	tell := e.barredLocked() && !e.barred
	e.barred = (e.barred || tell) && errors.Is(cause, errUnwelcome)
	e.movedLocked()
	e.mu.Unlock()
	if tell {
		e.c.log.Warn("the identity is not allowed at any edge router any more", "identity", string(e.c.self))
	}
	e.c.hosts.lost(edge)
	e.c.log.Info("edge router lost", "router", string(edge.id), "paths", len(rows), "err", cause)
	for _, row := range rows {
		row.circuit.stream.ConnLost(row.generation)
	}
}

// close closes a connection that the dial loop does not want.
func (e *edges) close(key dialer.Key, number uint64) {
	if edge := e.lastDialed(ginnel.RouterID(key)); edge != nil && edge.number == number {
		edge.conn.Close(errNotWanted)
		edge.settle()
	}
}

func (e *edges) lastDialed(id ginnel.RouterID) *edge {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dialed[id]
}

// observe sees what the dial loop does.
func (e *edges) observe(_ time.Time, action dialer.Action) {
	answered, ok := action.(dialer.Answered)
	if !ok {
		return
	}
	id := ginnel.RouterID(answered.Key)
	if answered.Err == nil {
		if edge := e.lastDialed(id); edge != nil {
			edge.settle()
		}
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.routers[id]; r != nil {
		r.failed, r.err = true, answered.Err
		e.movedLocked()
	}
}

// moved tells those who wait that something has changed.
func (e *edges) moved() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.movedLocked()
}

func (e *edges) movedLocked() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// watch gives a channel that is closed at the next change.
func (e *edges) watch() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// faulted notes that a dial through a router failed by the router's fault.
func (e *edges) faulted(id ginnel.RouterID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.routers[id]; r != nil {
		r.failedAt = time.Now()
	}
}

// wish is what a pick looks for.
type wish struct {
	service ginnel.ServiceID  // whose last router is preferred; "": of no service
	allowed []ginnel.RouterID // empty: all
	skip    map[ginnel.RouterID]bool
}

func (w wish) takes(id ginnel.RouterID) bool {
	return !w.skip[id] && (len(w.allowed) == 0 || slices.Contains(w.allowed, id))
}

// pick gives the connection to use. While none is up it waits for those that
// are being made for the first time, or were lost a moment ago.
func (e *edges) pick(ctx context.Context, w wish) (*edge, error) {
	for {
		edge, hope, changed, err := e.look(w)
		if edge != nil || err != nil {
			return edge, err
		}
		timer := time.NewTimer(hope)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
		timer.Stop()
	}
}

// look gives the best connection, or how long to hope for one, or why there is none.
func (e *edges) look(w wish) (best *edge, hope time.Duration, changed <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	var able []candidate
	var cause error
	for id, r := range e.routers {
		if !w.takes(id) {
			continue
		}
		switch {
		case r.live != nil:
			able = append(able, candidate{id, time.Duration(r.live.smoothed.Load()), now.Sub(r.failedAt) < failedFor})
		case r.failed:
		case r.lostAt.IsZero():
			hope = max(hope, maxRedial)
		default:
			hope = max(hope, r.lostAt.Add(redialGrace).Sub(now))
		}
		if r.err != nil {
			cause = fmt.Errorf("%s: %w", id, r.err)
		}
	}
	if len(able) > 0 {
		id := choose(e.chosen[w.service], able, e.pickOne)
		e.chosen[w.service] = id
		return e.routers[id].live, 0, nil, nil
	}
	if hope <= 0 {
		return nil, 0, nil, e.unavailable(w, cause)
	}
	return nil, hope, e.changed, nil
}

// barredLocked reports whether every edge router says that the identity is not allowed
// there any more: one alone might lie.
func (e *edges) barredLocked() bool {
	for _, r := range e.routers {
		if !errors.Is(r.err, errUnwelcome) {
			return false
		}
	}
	return len(e.routers) > 0
}

func (e *edges) unavailable(w wish, cause error) error {
	switch {
	case len(e.routers) == 0:
		return ginnel.Errorf(ginnel.EdgeRouterUnavailable, "the identity has no edge router")
	case e.barredLocked():
		return ginnel.Errorf(ginnel.NotAuthenticated, "every edge router says that identity %s is not allowed any more", e.c.self)
	case len(w.allowed) > 0 && !slices.ContainsFunc(w.allowed, func(id ginnel.RouterID) bool { return e.routers[id] != nil }):
		return ginnel.Errorf(ginnel.EdgeRouterUnavailable, "no edge router of the identity is allowed for service %s", w.service)
	case cause != nil:
		return ginnel.Errorf(ginnel.EdgeRouterUnavailable, "no edge router is connected: %s", cause)
	}
	return ginnel.Errorf(ginnel.EdgeRouterUnavailable, "no edge router is connected")
}

// ranked gives the live connections that a wish takes, best first.
func (e *edges) ranked(w wish) []*edge {
	e.mu.Lock()
	defer e.mu.Unlock()
	var able []candidate
	for id, r := range e.routers {
		if r.live != nil && w.takes(id) {
			able = append(able, candidate{id: id, rtt: time.Duration(r.live.smoothed.Load())})
		}
	}
	slices.SortFunc(able, rank)
	out := make([]*edge, len(able))
	for i, a := range able {
		out[i] = e.routers[a.id].live
	}
	return out
}
