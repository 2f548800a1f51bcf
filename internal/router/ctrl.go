// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
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

// survivorWait is how long a connection that is said to live already may take
// to show up at this end.
const survivorWait = time.Second

var (
	// errElsewhere: the peer holds a connection with somebody of our name.
	errElsewhere = errors.New("identity in use elsewhere")
	// errLate: the dial of this connection was given up before it was up.
	errLate = errors.New("connection came too late")
)

// ctrl holds the ctrl channels, at most one to each controller, dialed and
// accepted ones alike. The controller decides which of two stays.
type ctrl struct {
	r        *Router
	registry *transport.Registry[ginnel.ControllerID]
	loop     *dialloop.Loop

	mu       sync.Mutex
	channels map[uint64]*ctrlChannel // by number
	news     changes
}

// ctrlChannel is one ctrl channel that is up. What is not marked otherwise does
// not change.
type ctrlChannel struct {
	r          *Router
	conn       *transport.Conn
	controller ginnel.ControllerID
	boot       ginnel.BootID // of the controller
	number     uint64        // this router's; never given twice
	connection uint64        // the controller's number of it
	offset     time.Duration // the controller's clock minus ours
	since      time.Time

	pages configPages // of the reading goroutine
}

func newCtrl(r *Router, rng *rand.Rand) *ctrl {
	c := &ctrl{
		r:        r,
		registry: transport.NewRegistry[ginnel.ControllerID](0),
		channels: make(map[uint64]*ctrlChannel),
	}
	// One entry for each address: which controller answers there is not known before.
	source := make(dialer.Addresses, len(r.cfg.Controllers))
	for _, a := range r.cfg.Controllers {
		source[dialer.Key(a)] = []ginnel.Address{a}
	}
	c.loop = dialloop.New(dialloop.Options{
		Config: r.cfg.patience(ctrlRetry),
		Random: rng,
		Source: source,
		Dial:   c.dial,
		Close:  func(_ dialer.Key, number uint64) { c.close(number, errLate) },
		Observe: func(_ time.Time, action dialer.Action) {
			if a, ok := action.(dialer.Answered); ok && a.Err != nil {
				r.log.Warn("dial of a controller", "address", string(a.Key), "attempt", a.Attempt, "err", a.Err)
			}
		},
	})
	return c
}

// run dials the configured controllers.
func (c *ctrl) run(ctx context.Context) {
	for _, a := range c.r.cfg.Controllers {
		c.loop.Send(dialer.Updated{Key: dialer.Key(a)})
	}
	c.loop.Run(ctx)
}

// dial makes a ctrl channel to the controller at address; a router without a
// valid certificate asks for one there first.
func (c *ctrl) dial(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
	r := c.r
	if !r.self.ready() {
		if err := r.self.enrollAt(ctx, address); err != nil {
			return 0, err
		}
	}
	holder := r.self.held()
	want := ginnel.Peer{Role: ginnel.RoleController}
	conn, err := transport.DialFramed(ctx, r.out, address.HostPort(),
		pki.ClientConfig(holder, time.Now, want, wire.ALPNCtrl), transport.IdentifyBy(holder))
	if err != nil {
		return 0, err
	}
	ch, err := c.greet(ctx, conn)
	if survivor, ok := transport.IsDuplicate(err); ok {
		if ch = c.await(ctx, conn.Peer().ID, survivor); ch == nil {
			return 0, fmt.Errorf("%w: %w", errElsewhere, err)
		}
		lostAfter(ctx, c.loop, key, ch.conn, ch.number)
		return 0, &dialloop.DuplicateError{Conn: ch.number}
	}
	if err != nil {
		return 0, err
	}
	r.running.Go(func() { c.serve(r.ctx, ch) })
	lostAfter(ctx, c.loop, key, ch.conn, ch.number)
	return ch.number, nil
}

// lostAfter tells the loop of the connection's end, but not before it has heard
// of its beginning: then it cancels the dial's context.
func lostAfter(dial context.Context, loop *dialloop.Loop, key dialer.Key, conn *transport.Conn, number uint64) {
	conn.AfterClose(func() {
		<-dial.Done()
		loop.Send(dialer.ConnLost{Key: key, Conn: number})
	})
}

// accept serves a controller that dialed.
func (c *ctrl) accept(ctx context.Context, conn *transport.Conn) {
	ch, err := c.greet(ctx, conn)
	if err != nil {
		c.r.log.Debug("ctrl channel refused", "remote", conn.RemoteAddr().String(), "err", err)
		return
	}
	c.serve(ctx, ch)
}

// greet makes a ctrl channel of a new connection.
func (c *ctrl) greet(ctx context.Context, conn *transport.Conn) (*ctrlChannel, error) {
	a, err := conn.Handshake(ctx, transport.Greeting{Self: string(c.r.id), Hello: c.hello()})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ch := &ctrlChannel{
		r: c.r, conn: conn, number: c.r.nextNumber(), connection: a.Connection, since: now,
		controller: ginnel.ControllerID(conn.Peer().ID), boot: ginnel.BootID(a.Hello.GetBoot()),
		offset: time.Unix(0, a.Hello.GetClock()).Sub(now),
	}
	if !c.registry.Adopt(ch.controller, a.Hello.GetBoot(), a.Connection, conn) {
		return nil, conn.Err()
	}
	c.mu.Lock()
	c.channels[ch.number] = ch
	c.mu.Unlock()
	return ch, nil
}

// hello is what this router says of itself. Only what is to be advertised is in it.
func (c *ctrl) hello() *wire.Hello {
	cfg := c.r.cfg
	rh := &wire.RouterHello{
		LinkAddresses: wire.Strings(cfg.Advertise),
		LinkGroups:    cfg.LinkGroups,
		Software:      c.r.software,
	}
	if cfg.edge() && len(cfg.Advertise) > 0 {
		rh.EdgeAddress = string(cfg.Advertise[0])
	}
	if cfg.Advertise != nil {
		rh.CtrlListeners = &wire.CtrlListeners{}
		for _, a := range cfg.Advertise {
			rh.CtrlListeners.Listeners = append(rh.CtrlListeners.Listeners, &wire.CtrlListener{Address: string(a), Groups: cfg.Groups})
		}
	}
	return &wire.Hello{Network: string(c.r.netID), Boot: string(c.r.boot), Router: rh}
}

// serve runs a ctrl channel to its end.
func (c *ctrl) serve(ctx context.Context, ch *ctrlChannel) {
	log := c.r.log.With("controller_id", string(ch.controller), "connection", ch.connection)
	log.Info("ctrl channel up", "boot", string(ch.boot))
	c.news.happened()
	c.r.circuits.channelUp(ch)
	c.r.report.channelUp(ch)
	c.r.changes.happened()
	err := ch.conn.Run(ctx, ch)
	c.mu.Lock()
	delete(c.channels, ch.number)
	c.mu.Unlock()
	c.r.report.channelGone(ch)
	c.r.relays.channelGone(ch)
	c.r.circuits.channelGone(ch)
	c.r.changes.happened()
	log.Info("ctrl channel down", "err", err)
}

// close ends a channel by its number.
func (c *ctrl) close(number uint64, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.channels[number]; ch != nil {
		ch.conn.Close(cause)
	}
}

// await gives the channel to a controller that the controller numbers
// connection; its ACCEPT may still be on the way. Nil: there is none.
func (c *ctrl) await(ctx context.Context, controller string, connection uint64) *ctrlChannel {
	ctx, cancel := context.WithTimeout(ctx, survivorWait)
	defer cancel()
	for {
		news := c.news.next()
		for _, ch := range c.all() {
			if string(ch.controller) == controller && ch.connection == connection {
				return ch
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}

// all gives the channels that are up, oldest first.
func (c *ctrl) all() []*ctrlChannel {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*ctrlChannel, 0, len(c.channels))
	for _, ch := range c.channels {
		if ch.conn.Err() == nil {
			list = append(list, ch)
		}
	}
	slices.SortFunc(list, func(a, b *ctrlChannel) int { return int(a.number) - int(b.number) })
	return list
}

// any gives the oldest channel; nil when there is none.
func (c *ctrl) any() *ctrlChannel {
	if all := c.all(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// to gives the channel to a controller; nil when there is none.
func (c *ctrl) to(id ginnel.ControllerID) *ctrlChannel {
	for _, ch := range c.all() {
		if ch.controller == id {
			return ch
		}
	}
	return nil
}

// info names the channel's controller, with its clock as of now: what has passed
// since its Hello, however often this machine's clock was set meanwhile.
func (ch *ctrlChannel) info() *wire.ControllerInfo {
	return &wire.ControllerInfo{
		Id: string(ch.controller), Boot: string(ch.boot), Clock: ch.since.Add(time.Since(ch.since) + ch.offset).UnixNano(),
	}
}

// controllers names the controllers that a ctrl channel goes to: what SDKs
// need to sign requests for one of them.
func (r *Router) controllers() *wire.Controllers {
	all := r.ctrl.all()
	list := &wire.Controllers{Controllers: make([]*wire.ControllerInfo, len(all))}
	for i, ch := range all {
		list.Controllers[i] = ch.info()
	}
	return list
}
