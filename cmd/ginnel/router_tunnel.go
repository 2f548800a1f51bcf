// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/document"
	"github.com/ginnel/ginnel/internal/router"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/sdk"
)

// builtIn is the tunneler in a router's process, if the router's configuration
// has a section for it. It is a client of the network like any other, with an
// identity of its own, and has nothing of the router but the short way to it.
type builtIn struct {
	dir   string       // the router's
	flags *tunnelFlags // nil: there is none
	cmd   *cobra.Command
}

// section reads the section.
func (b *builtIn) section() document.Section { return document.Section{Name: "tunneler", Set: b.set} }

// hump is where a word begins in camel case.
var hump = regexp.MustCompile(`[a-z][A-Z]`)

// set takes a key, the name of a flag of tunnel run in camel case, and its values.
func (b *builtIn) set(key string, values ...string) error {
	if b.flags == nil {
		b.cmd = new(cobra.Command)
		b.flags = addTunnelFlags(b.cmd)
	}
	name := strings.ToLower(hump.ReplaceAllStringFunc(key, func(s string) string { return s[:1] + "-" + s[1:] }))
	flag := b.cmd.Flags().Lookup(name)
	if flag == nil || strings.Contains(key, "-") || name == "proxy" { // the router's dialProxy holds
		return errors.New("unknown key")
	}
	if kind := flag.Value.Type(); len(values) != 1 && kind != "func" && kind != "stringArray" {
		return errors.New("want one value")
	}
	for _, value := range values {
		if err := b.cmd.Flags().Set(name, value); err != nil {
			if inner := errors.Unwrap(err); inner != nil { // without the flag's name
				err = inner
			}
			return fmt.Errorf("%s: %w", value, err)
		}
	}
	return nil
}

// complete fills in what the section leaves out, and says what is wrong with it.
func (b *builtIn) complete() error {
	if b.flags == nil {
		return nil
	}
	if b.flags.identity == "" {
		return errors.New("tunneler.identity: name the file of an identity: `ginnel identity enroll TOKEN` makes one")
	}
	state := &b.flags.cfg.Names.StateFile
	*state = cmp.Or(*state, "names.json")
	for _, file := range []*string{&b.flags.identity, state} {
		if !filepath.IsAbs(*file) {
			*file = filepath.Join(b.dir, *file)
		}
	}
	if err := b.flags.validate(); err != nil {
		return errors.New("tunneler: " + err.Error()) // it is not the command that was used wrongly
	}
	return nil
}

// dialer gives what the process opens its own connections with, the router's
// included: they are not intercepted.
func (b *builtIn) dialer() net.Dialer {
	if b.flags == nil {
		return net.Dialer{}
	}
	return b.flags.dialer()
}

// run runs the router and its tunneler until ctx ends, or one of them does.
func (b *builtIn) run(ctx context.Context, r *router.Router, out transport.Network, log *slog.Logger) error {
	if b.flags == nil {
		return r.Run(ctx)
	}
	dialer := b.dialer()
	near := func(ctx context.Context, _, address string) (net.Conn, error) {
		at, own := r.Here(address)
		switch {
		case !own:
			return out.Dial(ctx, address)
		case at == "":
			return nil, errors.New("this router does not listen yet")
		}
		return transport.OS{Dialer: &dialer}.Dial(ctx, at)
	}
	t, err := openCarrier(b.flags, log, dialer, func(opts sdk.Options) (*sdk.Client, error) {
		opts.DialNetwork = near
		return openClientWith(b.cmd, b.flags.identity, transport.OS{}, opts)
	})
	if err != nil {
		return fmt.Errorf("tunneler: %w", err)
	}
	defer t.close()
	a := t.started()
	log.Info("tunneler runs", "dns", a.DNS, "socks", a.SOCKS, "listen", a.Listen, "intercept", b.flags.cfg.Intercept)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var carried error
	var carrying sync.WaitGroup
	carrying.Go(func() {
		defer cancel()
		if carried = t.run(ctx); carried != nil {
			carried = fmt.Errorf("tunneler: %w", carried)
		}
	})
	err = r.Run(ctx)
	cancel()
	carrying.Wait()
	return errors.Join(err, carried)
}
