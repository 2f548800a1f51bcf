// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"iter"
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

// ValidateDials says of every router, tracked or stored, what is and what
// differs from what should be.
func (a dialerAdmin) ValidateDials(ctx context.Context) ([]api.Dial, error) {
	list := []api.Dial{}
	err := a.ask(ctx, func(m *dialer.Dialer) {
		view := a.c.store.View()
		for r := range view.Routers().All() {
			d := a.state(m, r.ID)
			d.Problem = a.problem(m, r)
			list = append(list, d)
		}
		for s := range m.All() {
			if _, ok := view.Routers().Get(ginnel.RouterID(s.Key)); !ok {
				d := a.show(s)
				d.Problem = "tracked, but not in the store"
				list = append(list, d)
			}
		}
	})
	sortBy(list, func(d api.Dial) ginnel.RouterID { return d.Router })
	return list, err
}

// problem says how a router's state differs from what it should be.
func (a dialerAdmin) problem(m *dialer.Dialer, r ginnel.Router) string {
	s, _ := m.Status(dialer.Key(r.ID))
	ch := a.c.channels.get(r.ID)
	switch {
	case ch == nil && s.Conn != 0:
		return "the machine counts a connection that is gone"
	case ch != nil && s.Conn != ch.number:
		return "the machine does not count the ctrl channel that is up"
	case r.Disabled && (ch != nil || s.State != dialer.None):
		return "disabled, but connected or tracked"
	case r.Disabled || ch != nil || s.State != dialer.None:
		return ""
	case len(a.c.dialable(r)) > 0:
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
		Router: id, State: s.State.String(), Address: string(s.Address()), Attempts: s.Attempts, Delay: s.RetryDelay,
		Next: instant(s.NextDial), Since: instant(s.Since), Connected: a.c.channels.get(id) != nil,
	}
	for _, address := range s.Addresses {
		d.Addresses = append(d.Addresses, string(address))
	}
	if s.LastError != nil {
		d.LastError = s.LastError.Error()
		if f, ok := a.c.dials.failures[s.Key]; ok {
			d.ErrorAt = &f.at
		}
	}
	return d
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
