// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/transport"
)

// settings is the part of the configuration that may change while the
// controller runs, and what follows from it. It is replaced as a whole.
type settings struct {
	dialer dialer.Config
	// out is where dials of routers begin.
	out transport.Network
	// certificateLife is that of certificates issued from now on.
	certificateLife time.Duration
}

func newSettings(cfg Config, network transport.Network) *settings {
	return &settings{dialer: cfg.Dialer, out: cfg.DialProxy.Network(network), certificateLife: cfg.CertificateLife}
}

// Reconfigure takes another configuration while the controller runs: how, in
// which groups and through which proxy it dials, and how long certificates live. Delays that are planned stay as
// they are; routers whose addresses are others now are looked at anew. It gives
// the keys that differ and count only from the next start on. LogLevel is the
// business of whoever made the log. On an error nothing has changed.
func (c *Controller) Reconfigure(cfg Config) (restart []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c.reloading.Lock()
	defer c.reloading.Unlock()
	old := c.settings.Swap(newSettings(cfg, c.net))
	c.metrics.dialing.workers.Set(float64(cfg.Dialer.MaxWorkers))
	c.dials.send(dialer.Reconfigured{Config: cfg.Dialer})
	for router := range c.store.View().Routers().All() {
		if !slices.Equal(dialable(old.dialer, router), dialable(cfg.Dialer, router)) {
			c.dials.send(dialer.Updated{Key: dialer.Key(router.ID), Disabled: router.Disabled})
		}
	}
	for _, key := range []struct {
		name     string
		old, new any
	}{{"listen", c.cfg.Listen, cfg.Listen}, {"advertise", c.cfg.Advertise, cfg.Advertise}} {
		if key.old != key.new {
			restart = append(restart, key.name)
		}
	}
	return restart, nil
}

// dialable gives where a router is to be dialed, in its order.
func dialable(cfg dialer.Config, r ginnel.Router) []ginnel.Address {
	if r.Disabled || !cfg.Enabled {
		return nil
	}
	var list []ginnel.Address
	for _, l := range r.CtrlListeners {
		ours := slices.ContainsFunc(groupsOf(l), func(g string) bool { return slices.Contains(cfg.Groups, g) })
		if ours && !slices.Contains(list, l.Address) {
			list = append(list, l.Address)
		}
	}
	return list
}

// dialable gives where this controller dials a router now.
func (c *Controller) dialable(r ginnel.Router) []ginnel.Address {
	return dialable(c.settings.Load().dialer, r)
}
