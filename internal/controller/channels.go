// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// Why this controller hangs up.
var (
	errDisabled = errors.New("router is disabled")
	errDeleted  = errors.New("router was deleted")
	errRekeyed  = errors.New("router has another key now")
	errStale    = errors.New("connection came too late")
)

// channel is a ctrl channel that is up. Its fields do not change, save what
// has a lock of its own.
type channel struct {
	router ginnel.RouterID
	number uint64 // of the connection; never used twice for a router
	conn   *transport.Conn
	boot   ginnel.BootID     // of the router's process
	hello  *wire.RouterHello // never nil
	since  time.Time

	asks    asks
	reports *reports
	relays  *relays
}

// channels holds the ctrl channels, at most one for each router, accepted and
// dialed ones alike. This end decides which of two stays.
type channels struct {
	c        *Controller
	registry *transport.Registry[ginnel.RouterID]

	mu sync.Mutex
	up map[ginnel.RouterID]*channel
}

func newChannels(c *Controller) *channels {
	return &channels{
		c:        c,
		registry: transport.NewRegistry[ginnel.RouterID](uint64(time.Now().UnixMicro())),
		up:       make(map[ginnel.RouterID]*channel),
	}
}

// get gives the channel of a router; nil when there is none.
func (cs *channels) get(id ginnel.RouterID) *channel {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.up[id]
}

// all gives every channel, by router id.
func (cs *channels) all() []*channel {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	list := make([]*channel, 0, len(cs.up))
	for _, ch := range cs.up {
		list = append(list, ch)
	}
	slices.SortFunc(list, func(a, b *channel) int { return cmp.Compare(a.router, b.router) })
	return list
}

// has reports whether connection number is the router's channel now.
func (cs *channels) has(id ginnel.RouterID, number uint64) bool {
	ch := cs.get(id)
	return ch != nil && ch.number == number
}

// close ends a connection of a router, if it is its channel now.
func (cs *channels) close(id ginnel.RouterID, number uint64, cause error) {
	if ch := cs.get(id); ch != nil && ch.number == number {
		ch.conn.Close(cause)
	}
}

// recheck hangs up the channel of a router that may no longer have it. The view
// is taken after the channel: an older one may not know yet what let it in.
func (cs *channels) recheck(id ginnel.RouterID) {
	if ch := cs.get(id); ch != nil {
		if err := admitted(cs.c.store.View(), id, ch.conn.KeyHash()); err != nil {
			ch.conn.Close(err)
		}
	}
}

// admitted reports why a router with that key may have no channel, or nil.
func admitted(view *store.View, id ginnel.RouterID, key string) error {
	router, ok := view.Routers().Get(id)
	switch {
	case !ok:
		return errDeleted
	case router.Disabled:
		return errDisabled
	case router.Key != key:
		return errRekeyed
	}
	return nil
}

// greet makes a channel of a new connection, or closes it and says why not.
func (cs *channels) greet(ctx context.Context, conn *transport.Conn) (*channel, error) {
	c := cs.c
	id := ginnel.RouterID(conn.Peer().ID)
	number := cs.registry.Next()
	var refused error // by us, and why
	accepted, err := conn.Handshake(ctx, transport.Greeting{
		Self: string(c.id),
		Hello: &wire.Hello{
			Network: string(c.network), Boot: string(c.boot), Connection: number,
			Clock: c.clock().UnixNano(), Groups: c.settings.Load().dialer.Groups,
		},
		Decide: func(ctx context.Context, hello *wire.Hello) *wire.Verdict {
			if refused = admitted(c.store.View(), id, conn.KeyHash()); refused != nil {
				return transport.Refuse(ginnel.NotAuthenticated, refused.Error())
			}
			if hello.GetRouter() == nil {
				return transport.Refuse(ginnel.NotAuthenticated, "hello says nothing of a router")
			}
			return cs.registry.Admit(ctx, id, number, conn)
		},
	})
	if err != nil && refused != nil {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	ch := &channel{
		router: id, number: number, conn: conn, since: time.Now(),
		boot: ginnel.BootID(accepted.Hello.GetBoot()), hello: accepted.Hello.GetRouter(),
		reports: newReports(conn),
	}
	ch.relays = newRelays(c, ch)
	return ch, cs.register(ch)
}

// register makes ch the channel of its router. Who changes the store and then
// looks for channels finds it, or it finds the change.
func (cs *channels) register(ch *channel) error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	err := ch.conn.Err()
	if err == nil {
		if err = admitted(cs.c.store.View(), ch.router, ch.conn.KeyHash()); err != nil {
			ch.conn.Close(err)
		}
	}
	if err != nil {
		return err
	}
	if old := cs.up[ch.router]; old != nil {
		// The registry has dropped it for this one.
		old.conn.Close(errStale)
	}
	cs.up[ch.router] = ch
	cs.c.fabric.begin(ch)
	return nil
}

// accepted takes a connection that a router made, until it ends.
func (cs *channels) accepted(ctx context.Context, conn *transport.Conn) {
	ch, err := cs.greet(ctx, conn)
	if err != nil {
		cs.c.log.Debug("ctrl channel refused", "router_id", conn.Peer().ID, "remote", conn.RemoteAddr().String(), "err", err)
		return
	}
	cs.announce(ch)
	cs.carry(ctx, ch)
}

// announce tells the dial machine of a channel that it has not dialed. The
// lock keeps an older channel from being announced after a newer one.
func (cs *channels) announce(ch *channel) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.up[ch.router] == ch {
		cs.c.dials.send(dialer.ConnUp{Key: dialer.Key(ch.router), Conn: ch.number})
	}
}

// carry runs a channel until it ends and takes everything back that came over it.
func (cs *channels) carry(ctx context.Context, ch *channel) {
	c := cs.c
	c.log.Info("router connected", "router_id", string(ch.router), "connection", ch.number, "remote", ch.conn.RemoteAddr().String())
	c.metrics.channels.Inc()
	c.running.Go(func() { c.storeListeners(ctx, ch) })
	c.running.Go(func() { c.takeReports(ctx, ch) })
	err := ch.conn.Run(ctx, receiver{c, ch})

	cs.mu.Lock()
	if cs.up[ch.router] == ch {
		delete(cs.up, ch.router)
	}
	cs.mu.Unlock()
	c.metrics.channels.Dec()
	c.fabric.forget(ch)
	c.circuits.channelGone(ch)
	c.services.channelGone(ch)
	ch.relays.end()
	c.ready.settled(ch.router)
	c.dials.send(dialer.ConnLost{Key: dialer.Key(ch.router), Conn: ch.number})
	c.log.Info("router disconnected", "router_id", string(ch.router), "connection", ch.number, "err", err)
}

// maxListeners bounds the ctrl listeners that a router may advertise.
const maxListeners = 32

// storeListeners writes the ctrl listeners that a router advertises to the
// store where they differ. Absent: unchanged; an empty list clears them. It
// tries until it is done or the channel ends.
func (c *Controller) storeListeners(ctx context.Context, ch *channel) {
	advertised := ch.hello.GetCtrlListeners()
	if advertised == nil {
		return
	}
	listeners, err := readListeners(advertised)
	if err != nil {
		c.log.Warn("router advertises wrong ctrl listeners", "router_id", string(ch.router), "err", err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ch.conn.AfterClose(cancel)
	for {
		known, ok := c.store.View().Routers().Get(ch.router)
		if !ok || slices.EqualFunc(known.CtrlListeners, listeners, sameListener) {
			return
		}
		_, err := c.store.Update(ctx, func(tx *store.Tx) error {
			router, err := tx.Routers().Get(ch.router)
			if err != nil {
				return err
			}
			router.CtrlListeners = listeners
			return tx.Routers().Put(router)
		})
		if err == nil || errors.Is(err, store.ErrNotFound) || ctx.Err() != nil {
			return
		}
		c.log.Warn("ctrl listeners not stored yet", "router_id", string(ch.router), "err", err)
		if !pause(ctx, time.Second) {
			return
		}
	}
}

func sameListener(a, b ginnel.Listener) bool {
	return a.Address == b.Address && slices.Equal(groupsOf(a), groupsOf(b))
}

// groupsOf gives a listener's groups, the default one where it names none.
func groupsOf(l ginnel.Listener) []string {
	if len(l.Groups) == 0 {
		return []string{ginnel.DefaultGroup}
	}
	return l.Groups
}

// readListeners checks what a router advertises, in its order.
func readListeners(advertised *wire.CtrlListeners) ([]ginnel.Listener, error) {
	if n := len(advertised.GetListeners()); n > maxListeners {
		return nil, fmt.Errorf("%d ctrl listeners, at most %d", n, maxListeners)
	}
	var list []ginnel.Listener
	for _, l := range advertised.GetListeners() {
		address, err := ginnel.ParseAddress(l.GetAddress(), false, "tls")
		if err != nil {
			return nil, err
		}
		if len(l.GetGroups()) > maxListeners {
			return nil, fmt.Errorf("listener %s: %d groups, at most %d", address, len(l.GetGroups()), maxListeners)
		}
		for _, g := range l.GetGroups() {
			if err := ginnel.CheckName(g); err != nil {
				return nil, fmt.Errorf("listener %s: group: %w", address, err)
			}
		}
		list = append(list, ginnel.Listener{Address: address, Groups: l.GetGroups()})
	}
	return list, nil
}
