// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
)

// Options is what a Controller is made of.
type Options struct {
	Config Config
	// Holder of the controller's own credential.
	Holder *pki.Holder
	// CA of the network, which signs what the controller enrolls.
	CA *pki.CA
	// Store is not closed by the controller.
	Store   *store.Store
	Network transport.Network
	Log     *slog.Logger
	// Random decides backoff and weighted choices; nil: seeded by the system.
	// It is used by New only, to seed what the loops use.
	Random *rand.Rand
	// Entropy is what ids of circuits are drawn from, on any goroutine; nil: the
	// system's.
	Entropy io.Reader
	// Software is the version that Status tells.
	Software string
	// Renewed keeps a renewed credential of the controller; nil: it is kept in
	// memory only.
	Renewed func(*pki.Credential) error
	// Audit is where what administrators change is noted; nil: nowhere. It is
	// not closed by the controller.
	Audit *AuditLog
}

// Controller is one controller of a network. All methods may be called from any
// goroutine, before, during and after Run.
type Controller struct {
	cfg      Config // as of the start
	id       ginnel.ControllerID
	boot     ginnel.BootID
	network  ginnel.NetworkID
	holder   *pki.Holder
	ca       *pki.CA
	store    *store.Store
	net      transport.Network
	log      *slog.Logger
	software string
	renewed  func(*pki.Credential) error
	audit    *AuditLog // nil: there is none
	identify transport.Identify
	started  time.Time
	addr     atomic.Pointer[address] // of the listener

	settings  atomic.Pointer[settings]
	reloading sync.Mutex // held by Reconfigure

	rulesCache rulesCache
	metrics    *metrics
	dials      *dials
	channels   *channels
	fabric     *fabric
	ready      *readiness
	configs    *configs
	services   *services
	judge      *judge
	circuits   *circuits
	hints      *hints
	faults     *faults
	nonces     nonces

	// life ends when Run is to return. Set by Run before anything runs.
	life context.Context
	// running counts all goroutines; only those that it counts may add to it.
	running sync.WaitGroup
}

// New makes a controller that does nothing before Run.
func New(opts Options) (*Controller, error) {
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	self := opts.Holder.Load()
	if self.Self.Role != ginnel.RoleController {
		return nil, fmt.Errorf("credential of %s is not a controller's", self.Self)
	}
	network, ok := opts.Store.View().Network()
	if !ok {
		return nil, errors.New("the store holds no network")
	}
	if network.Name != self.Network || opts.CA.Network != self.Network {
		return nil, fmt.Errorf("the store is of network %s, the credential of %s, the CA of %s", network.Name, self.Network, opts.CA.Network)
	}
	if opts.Random == nil {
		opts.Random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	c := &Controller{
		cfg:      opts.Config,
		id:       ginnel.ControllerID(self.Self.ID),
		boot:     newBoot(),
		network:  self.Network,
		holder:   opts.Holder,
		ca:       opts.CA,
		store:    opts.Store,
		net:      opts.Network,
		log:      opts.Log,
		software: opts.Software,
		renewed:  opts.Renewed,
		audit:    opts.Audit,
		identify: transport.IdentifyBy(opts.Holder),
		started:  time.Now(),
	}
	c.settings.Store(newSettings(opts.Config, opts.Network))
	c.metrics = newMetrics(c)
	c.faults = newFaults(c.log, c.metrics.registry)
	c.metrics.dialing.workers.Set(float64(opts.Config.Dialer.MaxWorkers))
	c.ready = newReadiness(c)
	c.fabric = newFabric(c)
	c.channels = newChannels(c)
	c.configs = newConfigs(c)
	c.services = newServices(c)
	c.judge = newJudge(c)
	c.circuits = newCircuits(c, fork(opts.Random))
	if opts.Entropy != nil {
		c.circuits.ids = opts.Entropy
	}
	c.hints = newHints(c)
	c.dials = newDials(c, fork(opts.Random))
	return c, nil
}

// fork gives a source of its own for another goroutine.
func fork(r *rand.Rand) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), r.Uint64())) }

func newBoot() ginnel.BootID {
	var b [8]byte
	crand.Read(b[:])
	return ginnel.BootID(hex.EncodeToString(b[:]))
}

// ID gives the controller's id.
func (c *Controller) ID() ginnel.ControllerID { return c.id }

// Boot gives the id of this life of the controller.
func (c *Controller) Boot() ginnel.BootID { return c.boot }

// Ready reports whether every enabled router has reported all that it has, or
// cannot be reached: from then on what is missing is missing.
func (c *Controller) Ready() bool { return c.ready.is() }

// now is the clock that certificates are held against.
func now() time.Time { return time.Now() }

// Run runs the controller until ctx ends and all its goroutines have. It is
// called once. The error is why it could not start or go on; nil when ctx ended.
func (c *Controller) Run(ctx context.Context) error {
	listen, err := c.listen()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer c.running.Wait()
	defer cancel(nil)
	c.life = ctx
	view, changes := c.store.Subscribe()
	defer changes.Close()
	c.ready.begin(view)

	for _, loop := range []func(context.Context){
		c.dials.run, c.fabric.run, c.configs.run, c.services.run, c.judge.run, c.circuits.run, c.hints.run, c.ready.run, c.renewOwn, c.collectTokens,
	} {
		c.running.Go(func() { loop(ctx) })
	}
	if listen != nil {
		c.running.Go(func() {
			if err := listen.serve(ctx); err != nil {
				cancel(fmt.Errorf("listen on %s: %w", c.cfg.Listen, err))
			}
		})
	}
	c.running.Go(func() {
		if !c.watch(ctx, changes) {
			cancel(errors.New("the store was closed"))
		}
	})
	c.log.Info("controller runs", "controller_id", string(c.id), "boot", string(c.boot), "revision", int64(view.Revision()))
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}
