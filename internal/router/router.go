// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// Options is what a Router is made of. All but Token and Datagrams are needed.
type Options struct {
	Config      Config
	Network     transport.Network
	Credentials Credentials
	// Datagrams opens the sockets to "udp:" terminators; zero: a plain one.
	Datagrams net.Dialer
	// Token enrolls the router; looked at only while it has no certificate that
	// can be renewed.
	Token *pki.Token
	Log   *slog.Logger
	// Random spreads dials over time. It is used by New only.
	Random *mathrand.Rand
	// Software is reported to controllers: name and version of the program.
	Software string
}

// Router is one router. Its methods may be called from any goroutine.
type Router struct {
	cfg      Config // all defaults filled in
	id       ginnel.RouterID
	netID    ginnel.NetworkID
	boot     ginnel.BootID
	net      transport.Network
	out      transport.Network // for dials of controllers and routers
	udp      net.Dialer        // for terminators of datagrams
	log      *slog.Logger
	software string
	allowed  allowed
	changes  changes

	self     *enrollee
	ctrl     *ctrl
	links    *links
	report   *reporter
	loads    loads
	relays   *relays
	circuits *circuits
	edge     *edge

	numbers atomic.Uint64 // see nextNumber

	ctx     context.Context // of Run, set before any goroutine starts
	fail    context.CancelCauseFunc
	running sync.WaitGroup

	applying sync.Mutex // held while a configuration is applied

	mu        sync.Mutex
	listening string             // address of the listener; empty: none yet
	config    *wire.RouterConfig // newest that was applied; nil: none yet
}

// New makes a router that does nothing before Run. Errors say what is wrong
// with configuration, token or credential.
func New(opts Options) (*Router, error) {
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	r := &Router{
		cfg: opts.Config, net: opts.Network, out: opts.Config.DialProxy.Network(opts.Network), udp: opts.Datagrams, log: opts.Log, software: opts.Software, boot: newBoot(),
	}
	self, err := newEnrollee(r, opts.Credentials, opts.Token)
	if err != nil {
		return nil, err
	}
	r.self = self
	r.allowed = readAllowed(opts.Config, func(error, string, ...any) {}) // it was validated
	r.id, r.netID = ginnel.RouterID(self.peer.ID), self.anchor.Network
	r.fillIn(opts.Token)
	if r.cfg.Listen == "" && len(r.cfg.Controllers) == 0 {
		return nil, &dialer.KeyError{Key: "controllers", Problem: "neither listens nor names a controller to dial"}
	}
	r.report = newReporter(r.log)
	r.loads.r = r
	r.relays = newRelays()
	r.circuits = newCircuits(r)
	r.edge = newEdge(r)
	r.ctrl = newCtrl(r, branch(opts.Random))
	r.links = newLinks(r, branch(opts.Random))
	r.circuits.terms.rng = branch(opts.Random)
	return r, nil
}

// fillIn gives what the configuration leaves open its value.
func (r *Router) fillIn(token *pki.Token) {
	if token != nil && r.cfg.Advertise == nil && r.cfg.Listen != "" {
		r.cfg.Advertise = token.Addresses
	}
	if token != nil && r.cfg.Controllers == nil && r.cfg.Listen == "" {
		r.cfg.Controllers = token.Addresses
	}
	if len(r.cfg.Groups) == 0 {
		r.cfg.Groups = []string{ginnel.DefaultGroup}
	}
}

// newBoot names this life of the process.
func newBoot() ginnel.BootID {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return ginnel.BootID(hex.EncodeToString(b[:]))
}

// branch gives a source of its own to one goroutine.
func branch(rng *mathrand.Rand) *mathrand.Rand {
	return mathrand.New(mathrand.NewPCG(rng.Uint64(), rng.Uint64()))
}

// nextNumber gives a number for a ctrl channel, a link's connection or an edge
// connection: never 0, never given twice by this Router.
func (r *Router) nextNumber() uint64 { return r.numbers.Add(1) }

// Run runs the router until ctx ends and returns nil then, when all is closed
// and no goroutine is left. An error says why it cannot go on: it cannot
// listen, or its token has expired. It is called once.
func (r *Router) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	r.ctx, r.fail = ctx, cancel
	defer r.running.Wait()
	defer cancel(nil)
	if r.cfg.Listen != "" {
		if err := r.listen(); err != nil {
			return err
		}
	}
	r.running.Go(func() { r.self.run(ctx) })
	r.running.Go(func() { r.report.run(ctx) })
	r.running.Go(func() { r.circuits.run(ctx) })
	r.running.Go(func() { r.links.loop.Run(ctx) })
	r.running.Go(func() { r.ctrl.run(ctx) })
	r.running.Go(func() { r.loads.run(ctx) })
	<-ctx.Done()
	if cause := context.Cause(ctx); errors.As(cause, new(*fatalError)) {
		return cause
	}
	return nil
}

// fatalError ends Run.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// die ends Run with an error.
func (r *Router) die(format string, args ...any) {
	r.fail(&fatalError{fmt.Errorf(format, args...)})
}
