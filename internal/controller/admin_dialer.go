// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/store"
)

// dialerAdmin implements api.Dialer over the dial loop.
type dialerAdmin struct{ c *Controller }

// ask runs fn between two steps of the machine.
func (a dialerAdmin) ask(ctx context.Context, fn func(*dialer.Dialer)) error {
	if err := a.c.dials.loop.Ask(ctx, fn); err != nil {
		return api.Problemf(ginnel.KindUnavailable, "%s", err)
	}
	return nil
}

// ListDials gives every tracked router, by id.
func (a dialerAdmin) ListDials(ctx context.Context) ([]api.Dial, error) {
	list := []api.Dial{}
	err := a.ask(ctx, func(m *dialer.Dialer) {
		for s := range m.All() {
			list = append(list, a.show(s))
		}
	})
	sortBy(list, func(d api.Dial) ginnel.RouterID { return d.Router })
	return list, err
}

// InspectDial gives one router, tracked or not.
func (a dialerAdmin) InspectDial(ctx context.Context, id ginnel.RouterID) (api.Dial, error) {
	if _, ok := a.c.store.View().Routers().Get(id); !ok {
		return api.Dial{}, notFound(store.KindRouter, string(id))
	}
	var shown api.Dial
	err := a.ask(ctx, func(m *dialer.Dialer) { shown = a.state(m, id) })
	return shown, err
}

// settleTime is how long what is under way may take to reach the machine.
const settleTime = 200 * time.Millisecond

// ValidateDials says of every router, tracked or stored, what is and what
// differs from what should be. A difference counts only if it is still there
// settleTime later: a channel that has just come up is not one.
func (a dialerAdmin) ValidateDials(ctx context.Context) ([]api.Dial, error) {
	before, wrong, err := a.compare(ctx)
	if err != nil || wrong == 0 {
		return before, err
	}
	if !pause(ctx, settleTime) {
		return nil, api.Problemf(ginnel.KindUnavailable, "%s", context.Cause(ctx))
	}
	list, _, err := a.compare(ctx)
	for i, d := range list {
		same := func(o api.Dial) bool { return o.Router == d.Router && o.Problem == d.Problem }
		if !slices.ContainsFunc(before, same) {
			list[i].Problem = ""
		}
	}
	return list, err
}

// compare holds store, channels and machine against each other, and gives how
// many routers are wrong.
func (a dialerAdmin) compare(ctx context.Context) (list []api.Dial, wrong int, err error) {
	list = []api.Dial{}
	add := func(d api.Dial, problem string) {
		d.Problem = problem
		list = append(list, d)
		if problem != "" {
			wrong++
		}
	}
	err = a.ask(ctx, func(m *dialer.Dialer) {
		view := a.c.store.View()
		for r := range view.Routers().All() {
			add(a.state(m, r.ID), a.problem(m, r))
		}
		for s := range m.All() {
			if _, ok := view.Routers().Get(ginnel.RouterID(s.Key)); !ok {
				add(a.show(s), "tracked, but not in the store")
			}
		}
		for _, ch := range a.c.channels.all() {
			if _, ok := view.Routers().Get(ch.router); !ok {
				add(a.state(m, ch.router), "connected, but not in the store")
			}
		}
	})
	sortBy(list, func(d api.Dial) ginnel.RouterID { return d.Router })
	return list, wrong, err
}

// problem says how a router's state differs from what it should be.
func (a dialerAdmin) problem(m *dialer.Dialer, r ginnel.Router) string {
	s, _ := m.Status(dialer.Key(r.ID))
	ch, addrs := a.c.channels.get(r.ID), a.c.dialable(r)
	switch {
	case ch == nil && s.Conn != 0:
		return "the machine counts a connection that is gone"
	case ch != nil && s.Conn != ch.number:
		return "the machine does not count the ctrl channel that is up"
	case ch != nil && ch.conn.KeyHash() != r.Key:
		return "connected with another key than the store has"
	case r.Disabled && (ch != nil || s.State != dialer.None):
		return "disabled, but connected or tracked"
	case s.State != dialer.None && len(addrs) == 0:
		return "tracked, but has no address that this controller dials"
	case s.State != dialer.None && !slices.Equal(s.Addresses, addrs):
		return "the machine has other addresses than the store"
	case r.Disabled || ch != nil || s.State != dialer.None || !m.Scanned():
		return ""
	case len(addrs) > 0:
		return "not connected and not going to be dialed before the next scan"
	}
	return ""
}

func (a dialerAdmin) state(m *dialer.Dialer, id ginnel.RouterID) api.Dial {
	s, ok := m.Status(dialer.Key(id))
	if !ok {
		s.Key = dialer.Key(id)
	}
	d := a.show(s)
	if len(d.Addresses) == 0 {
		for _, address := range a.c.dials.Addresses(s.Key) {
			d.Addresses = append(d.Addresses, string(address))
		}
	}
	return d
}

// show gives a router's state; on the loop's goroutine.
func (a dialerAdmin) show(s dialer.Status) api.Dial {
	id := ginnel.RouterID(s.Key)
	d := api.Dial{
		Router: id, State: s.State.String(), Address: string(s.Address()), Attempts: s.Attempts, Delay: ginnel.Duration(s.RetryDelay),
		Next: instant(s.NextDial), NextIn: ginnel.Duration(until(s.NextDial)), Since: instant(s.Since), Connected: a.c.channels.get(id) != nil,
	}
	for _, address := range s.Addresses {
		d.Addresses = append(d.Addresses, string(address))
	}
	if s.LastError != nil {
		d.LastError, d.Outcome = s.LastError.Error(), outcomeOf(s.LastError)
		if f, ok := a.c.dials.failures[s.Key]; ok {
			d.ErrorAt = &f.at
		}
	}
	return d
}

// until gives the time until t, 0 for none and for what has passed.
func until(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Until(t))
}

// instant gives t, or nil for none.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Redial makes the machine dial a waiting router now.
func (a dialerAdmin) Redial(ctx context.Context, id ginnel.RouterID) error {
	if _, ok := a.c.store.View().Routers().Get(id); !ok {
		return notFound(store.KindRouter, string(id))
	}
	var s dialer.Status
	if err := a.ask(ctx, func(m *dialer.Dialer) { s, _ = m.Status(dialer.Key(id)) }); err != nil {
		return err
	}
	if s.State != dialer.NeedsDial {
		return api.Problemf(ginnel.KindConflict, "router %s is not waiting to be dialed: its state is %s", id, s.State)
	}
	a.c.dials.send(dialer.Redial{Key: dialer.Key(id)})
	return nil
}

// WatchDials yields changes until ctx ends or the reader is too slow.
func (a dialerAdmin) WatchDials(ctx context.Context) iter.Seq[api.DialEvent] {
	return a.c.dials.watchers.watch(ctx)
}
