// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/dialloop"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// whyPoolFull is what the machine says of a dial that did not get a place.
const whyPoolFull = "pool full"

var (
	errElsewhere   = errors.New("identity in use elsewhere")
	errNotEnrolled = errors.New("router enrolled and still wants to enroll")
)

// dials is the dial loop of this controller's routers: goroutine of Run, beside
// one for each dial. It dials nothing while the configuration says so, but it
// still knows who is connected.
type dials struct {
	c        *Controller
	loop     *dialloop.Loop
	watchers watchers[api.DialEvent]
	pace     *pace
	// failures holds why and when a tracked router's last dial failed. It
	// belongs to the loop's goroutine.
	failures map[dialer.Key]dialFailure
}

type dialFailure struct {
	err error
	at  time.Time
}

func newDials(c *Controller, random *rand.Rand) *dials {
	d := &dials{c: c, pace: newPace(&c.metrics.dialing), failures: make(map[dialer.Key]dialFailure)}
	d.loop = dialloop.New(dialloop.Options{
		Config:  c.cfg.Dialer,
		Random:  random,
		Source:  d,
		Dial:    d.dial,
		Close:   func(key dialer.Key, conn uint64) { c.channels.close(ginnel.RouterID(key), conn, errStale) },
		Sent:    d.sent,
		Keys:    d.keys,
		Observe: d.observe,
	})
	return d
}

func (d *dials) run(ctx context.Context) {
	d.loop.Run(ctx)
	d.watchers.end()
}

// send reports an event to the machine; it never waits.
func (d *dials) send(ev dialer.Event) { d.loop.Send(ev) }

// sent tells the machine once more of a connection that was lost before the
// machine had heard of it.
func (d *dials) sent(key dialer.Key, conn uint64) {
	if !d.c.channels.has(ginnel.RouterID(key), conn) {
		d.send(dialer.ConnLost{Key: key, Conn: conn})
	}
}

// Addresses implements dialer.Source over the store's cache.
func (d *dials) Addresses(key dialer.Key) []ginnel.Address {
	router, ok := d.c.store.View().Routers().Get(ginnel.RouterID(key))
	if !ok {
		return nil
	}
	return d.c.dialable(router)
}

// keys gives a page of the store's routers.
func (d *dials) keys(after dialer.Key, limit int) []dialer.Key {
	var keys []dialer.Key
	for _, row := range d.c.store.View().Routers().Page(ginnel.RouterID(after), limit) {
		keys = append(keys, dialer.Key(row.Record.ID))
	}
	return keys
}

// stored tells the machine what became of a router in the store.
func (d *dials) stored(change store.Change) {
	router, ok := change.New.(ginnel.Router)
	if !ok {
		d.send(dialer.Deleted{Key: dialer.Key(change.ID)})
		return
	}
	if before, ok := change.Old.(ginnel.Router); ok && before.Key != "" && router.Key == "" {
		// Deleted and created anew between two looks: another life of the name.
		d.send(dialer.Deleted{Key: dialer.Key(change.ID)})
	}
	d.send(dialer.Updated{Key: dialer.Key(change.ID), Disabled: router.Disabled})
}

// dial makes a ctrl channel to a router: one attempt of the machine. A router
// that has no certificate is enrolled on the way.
func (d *dials) dial(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
	// The machine hangs up then, too. The network is told so that it can give
	// each address of a name its share.
	ctx, cancel := context.WithTimeout(ctx, d.c.settings.Load().dialer.ConnectTimeout)
	defer cancel()
	want := ginnel.Peer{Role: ginnel.RoleRouter, ID: string(key)}
	conn, err := d.connect(ctx, want, address)
	if err != nil {
		return 0, refusedByAlert(err)
	}
	ch, err := d.c.channels.greet(ctx, conn)
	if survivor, ok := transport.IsDuplicate(err); ok {
		if d.c.channels.has(ginnel.RouterID(key), survivor) {
			return 0, &dialloop.DuplicateError{Conn: survivor}
		}
		return 0, errElsewhere
	}
	if err != nil {
		return 0, refusedByAlert(err)
	}
	// The dial's own goroutine counts for running, so it may add to it.
	d.c.running.Go(func() { d.c.channels.carry(d.c.life, ch) })
	return ch.number, nil
}

// connect gives a connection to the router over ctrl, after an enrollment
// where the router asks for one.
func (d *dials) connect(ctx context.Context, want ginnel.Peer, address ginnel.Address) (*transport.Conn, error) {
	out := d.c.settings.Load().out
	for range 2 {
		t, err := transport.Dial(ctx, out, address.HostPort(), pki.ClientConfig(d.c.holder, now, want, wire.ALPNCtrl, wire.ALPNEnroll))
		if err != nil {
			return nil, err
		}
		if t.ConnectionState().NegotiatedProtocol != wire.ALPNEnroll {
			return transport.Framed(t, d.c.identify)
		}
		if err := d.c.enrollDialed(ctx, t, want); err != nil {
			return nil, &unenrolledError{fmt.Errorf("enroll %s at %s: %w", want, address, err)}
		}
	}
	return nil, errNotEnrolled
}

// observe sees every action of the machine, on its goroutine.
func (d *dials) observe(at time.Time, action dialer.Action) {
	log := d.c.log
	d.pace.observe(at, action)
	switch a := action.(type) {
	case dialer.Answered:
		if a.Err != nil {
			d.failures[a.Key] = dialFailure{a.Err, at}
			d.c.ready.settled(ginnel.RouterID(a.Key))
		}
	case dialer.Moved:
		ev := d.event(at, a)
		level := slog.LevelDebug
		if ev.Error != "" {
			level = slog.LevelInfo // somebody may wonder; the delay keeps it rare
		}
		log.Log(context.Background(), level, "dial state", "router_id", string(a.Key), "from", ev.From, "to", ev.To,
			"why", a.Why, "address", ev.Address, "delay", a.RetryDelay, "err", ev.Error)
		d.watchers.publish(func() api.DialEvent { return ev })
		if a.To == dialer.None {
			delete(d.failures, a.Key)
		}
	case dialer.Ignored:
		log.Debug("dial event ignored", "router_id", string(a.Key), "why", a.Why)
	case dialer.Dial, dialer.Hangup, dialer.Close, dialer.Scan: // the loop carries them out
	}
}

// event gives a change as those who watch see it.
func (d *dials) event(at time.Time, m dialer.Moved) api.DialEvent {
	ev := api.DialEvent{
		At: at, Router: ginnel.RouterID(m.Key), From: m.From.String(), To: m.To.String(), Why: m.Why,
		Delay: ginnel.Duration(m.RetryDelay), Attempts: m.Attempts,
	}
	if m.To == dialer.NeedsDial || m.To == dialer.Dialing {
		if addrs := d.Addresses(m.Key); m.AddrIndex < len(addrs) {
			ev.Address = string(addrs[m.AddrIndex])
		}
	}
	if m.To == dialer.NeedsDial {
		ev.Next = &m.NextDial
		if f, ok := d.failures[m.Key]; ok && f.at.Equal(at) {
			ev.Error, ev.Outcome = f.err.Error(), outcomeOf(f.err)
		}
	}
	return ev
}
