// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/transport"
)

// The longest delays between dials of one controller and of one link.
const (
	ctrlRetry = 30 * time.Second
	linkRetry = 5 * time.Second
)

// Config is what a router is told by its owner; the tags are the keys of its file. The zero value listens nowhere
// and dials the controllers that its token names.
type Config struct {
	// Listen is HOST:PORT of the one listener; empty: it only dials.
	Listen string `yaml:"listen"`
	// Advertise is where others reach the listener, in order. It is all that is
	// ever reported. Nil: what the token says, or else nothing is said of it and
	// controllers keep what they know; empty but not nil: nowhere, they forget.
	Advertise []ginnel.Address `yaml:"advertise"`
	// Controllers are dialed, all of them, for as long as the router runs. Nil
	// where it does not listen: what the token says.
	Controllers []ginnel.Address `yaml:"controllers"`
	// DialProxy is what dials of controllers and routers go through; zero: none.
	// Hosted terminators are reached without it.
	DialProxy transport.Proxy `yaml:"dialProxy"`
	// Groups of the advertised addresses, by which controllers choose whom to
	// dial; empty: ginnel.DefaultGroup.
	Groups []string `yaml:"groups"`
	// LinkGroups that the router is in: all of a group link with each other.
	LinkGroups []string `yaml:"linkGroups"`
	// AllowAddresses are the only ones that terminators of this router may connect
	// to: addresses, prefixes, names, and "*.NAME" for all names below one. Nil:
	// any; empty but not nil: none.
	AllowAddresses []string `yaml:"allowAddresses"`
	// AllowPorts are the only ports likewise: "80" or "8000-8010".
	AllowPorts []string `yaml:"allowPorts"`
	// Edge: whether SDKs may connect; nil: if it listens.
	Edge *bool `yaml:"edge"`
	// Dialer is the patience with controllers and links. Nil: the defaults. Its
	// MaxRetryInterval is cut to 5 s for links. Groups and Enabled mean nothing.
	Dialer *dialer.Config `yaml:"dialer"`
}

// Validate reports everything that is wrong with c, joined, each a *dialer.KeyError;
// nil if it can be used.
func (c Config) Validate() error {
	var all []error
	refuse := func(err error, key string, args ...any) {
		if err != nil {
			all = append(all, &dialer.KeyError{Key: fmt.Sprintf(key, args...), Problem: err.Error()})
		}
	}
	if c.Listen != "" {
		_, err := ginnel.ParseAddress("tcp:"+c.Listen, true, "tcp")
		if err != nil {
			err = fmt.Errorf("%q is not HOST:PORT", c.Listen)
		}
		refuse(err, "listen")
	}
	for i, a := range c.Advertise {
		_, err := ginnel.ParseAddress(string(a), false, "tls")
		refuse(err, "advertise[%d]", i)
	}
	if len(c.Advertise) > 0 && c.Listen == "" {
		refuse(errors.New("nothing listens there: set listen"), "advertise")
	}
	for i, a := range c.Controllers {
		_, err := ginnel.ParseAddress(string(a), false, "tls")
		refuse(err, "controllers[%d]", i)
		if slices.Contains(c.Controllers[:i], a) {
			refuse(fmt.Errorf("%s is named twice", a), "controllers[%d]", i)
		}
	}
	for i, g := range c.Groups {
		refuse(ginnel.CheckName(g), "groups[%d]", i)
	}
	for i, g := range c.LinkGroups {
		refuse(ginnel.CheckName(g), "linkGroups[%d]", i)
	}
	readAllowed(c, refuse)
	if c.Edge != nil && *c.Edge && c.Listen == "" {
		refuse(errors.New("SDKs could not connect: set listen"), "edge")
	}
	if c.Dialer != nil {
		all = append(all, dialer.Below("dialer.", c.Dialer.Validate())...)
	}
	return errors.Join(all...)
}

// edge reports whether SDKs may connect.
func (c Config) edge() bool {
	if c.Edge != nil {
		return *c.Edge
	}
	return c.Listen != ""
}

// DefaultDialer gives the patience of a router with its controllers.
func DefaultDialer() dialer.Config {
	d := dialer.Defaults()
	d.MaxRetryInterval = ctrlRetry
	d.DialDelay = 0
	return d
}

// patience gives the configuration of a dial machine whose delays end at longest.
func (c Config) patience(longest time.Duration) dialer.Config {
	d := DefaultDialer()
	if c.Dialer != nil {
		d = *c.Dialer
	}
	d.MaxRetryInterval = min(d.MaxRetryInterval, longest)
	d.MinRetryInterval = min(d.MinRetryInterval, d.MaxRetryInterval)
	return d
}
