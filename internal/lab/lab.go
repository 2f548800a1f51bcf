// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/sdk"
)

// errDead is why a dead node cannot be silenced.
var errDead = errors.New("it is dead")

// Options says how a lab is run.
type Options struct {
	// Dir holds the lab's files; empty: a temporary one, removed by Close.
	Dir string
	// Plain runs on sockets as they are: faster, but without latency and silence.
	Plain bool
	// Via, if set, says where a router's dials to HOST:PORT really go.
	Via      func(router, hostport string) (instead string)
	Log      *slog.Logger
	Software string
}

// Lab is a network that runs.
type Lab struct {
	file *File
	opts Options
	dir  string
	log  *slog.Logger

	ports   *ports
	ca      *pki.CA
	backend *etcd.Backend

	pathsMu sync.Mutex
	paths   map[pair]path // the keys stay

	controllers []*controllerNode
	routers     map[string]*routerNode
	clients     map[string]*clientNode
	nodes       map[string]node

	life   context.Context
	cancel context.CancelFunc

	mu sync.Mutex // one command that changes something at a time
}

// Open brings a network up: it returns when every node has started. Whether all
// have found each other is for Wait to say. On an error nothing is left.
func Open(ctx context.Context, f *File, opts Options) (l *Lab, err error) {
	l = &Lab{
		file: f, opts: opts, log: opts.Log, ports: newPorts(f.dialer()), paths: map[pair]path{},
		routers: map[string]*routerNode{}, clients: map[string]*clientNode{}, nodes: map[string]node{},
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	l.life, l.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
			l = nil
		}
	}()
	for _, link := range f.Links {
		l.paths[makePair(link.A, link.B)] = path{latency: link.Latency}
	}
	for _, step := range []func(context.Context) error{
		l.openDir, l.openStore, l.startControllers, l.createEntities, l.startRouters, l.startClients,
	} {
		if err := step(ctx); err != nil {
			return l, err
		}
	}
	return l, nil
}

// Dir gives the directory of the lab's files.
func (l *Lab) Dir() string { return l.dir }

// File gives the description that the lab was made of.
func (l *Lab) File() *File { return l.file }

func (l *Lab) openDir(context.Context) error {
	if l.opts.Dir == "" {
		dir, err := os.MkdirTemp("", "ginnel-lab-")
		if err != nil {
			return fmt.Errorf("lab directory: %w", err)
		}
		l.dir = dir
		return nil
	}
	if err := os.MkdirAll(l.opts.Dir, 0o700); err != nil {
		return fmt.Errorf("lab directory: %w", err)
	}
	left, err := os.ReadDir(l.opts.Dir)
	if err != nil {
		return fmt.Errorf("lab directory: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("lab directory %s is not empty: give an empty one, or none", l.opts.Dir)
	}
	l.dir, err = filepath.Abs(l.opts.Dir)
	return err
}

// storeTime is how long one call of the store may take: a lab often runs beside what
// keeps its machine and its disk busy.
const storeTime = 20 * time.Second

func (l *Lab) openStore(ctx context.Context) (err error) {
	if l.ca, err = pki.NewCA(ginnel.NetworkID(l.file.Network), time.Now()); err != nil {
		return err
	}
	// A start that is broken off goes on behind our back, and leaves files: it takes
	// a moment, and ctx counts again after it.
	if l.backend, err = etcd.Open(context.WithoutCancel(ctx), filepath.Join(l.dir, "store"), etcd.Options{Logger: l.log, Timeout: storeTime}); err != nil {
		return err
	}
	st, err := store.New(ctx, l.backend, store.Options{Logger: l.log})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	_, err = st.Update(ctx, func(tx *store.Tx) error {
		return tx.Network().Create(store.Network{
			Name: ginnel.NetworkID(l.file.Network), CA: string(l.ca.CertPEM()), Created: time.Now(),
		})
	})
	return err
}

// credential issues a certificate as `controller init` does for its own.
func (l *Lab) credential(p ginnel.Peer, life time.Duration) (*pki.Holder, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	leaf, err := l.ca.IssueFor(time.Now(), life, p, key.Public())
	if err != nil {
		return nil, err
	}
	c, err := pki.NewCredential(key, leaf, l.ca.Cert)
	if err != nil {
		return nil, err
	}
	return pki.NewHolder(c), nil
}

func (l *Lab) newGround() ground {
	return l.groundOn(l.ports)
}

func (l *Lab) groundOn(under transport.Network) ground {
	if l.opts.Plain {
		return newPlain(under)
	}
	return newShaped(under)
}

func (l *Lab) routersDial() bool {
	return slices.ContainsFunc(l.file.Routers, func(r Router) bool { return r.Dial == dialRouter })
}

func (l *Lab) startControllers(context.Context) error {
	for _, c := range l.file.Controllers {
		n, err := newControllerNode(l, c)
		if err != nil {
			return err
		}
		l.controllers = append(l.controllers, n)
		l.nodes[c.Name] = n
	}
	for _, n := range l.controllers {
		if err := n.start(l.life); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) startRouters(ctx context.Context) error {
	for _, n := range l.routers {
		if err := n.start(l.life); err != nil {
			return err
		}
	}
	// Identities enroll through edge routers, so all of those are awaited.
	return l.poll(ctx, func() []string {
		var all []string
		for _, n := range l.controllers {
			all = append(all, n.missingRouters(l)...)
		}
		return all
	})
}

// NotReadyError says what a network lacked when the waiting ended, and why it
// ended.
type NotReadyError struct {
	Missing []string
	Cause   error
}

// Error lists what is missing.
func (e *NotReadyError) Error() string { return "not ready: " + strings.Join(e.Missing, "; ") }

// Unwrap gives why the waiting ended.
func (e *NotReadyError) Unwrap() error { return e.Cause }

// Wait waits until the network is ready: every router is connected to every
// controller, every link is up and measured, terminators are known, tunnelers
// answer. At the end of ctx it gives a *NotReadyError.
func (l *Lab) Wait(ctx context.Context) error { return l.poll(ctx, l.Missing) }

// Missing says what the network lacks to be ready; empty: it is.
func (l *Lab) Missing() []string {
	var all []string
	for _, name := range l.names() {
		all = append(all, l.nodes[name].missing(l)...)
	}
	return all
}

// pollEvery is how often a lab looks whether it is ready.
const pollEvery = 5 * time.Millisecond

func (l *Lab) poll(ctx context.Context, missing func() []string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		lacks := missing()
		if len(lacks) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return &NotReadyError{Missing: lacks, Cause: context.Cause(ctx)}
		}
	}
}

// names gives all nodes in the order of the file: controllers, routers, identities.
func (l *Lab) names() []string {
	var all []string
	for _, c := range l.file.Controllers {
		all = append(all, c.Name)
	}
	for _, r := range l.file.Routers {
		all = append(all, r.Name)
	}
	for _, i := range l.file.Identities {
		all = append(all, i.Name)
	}
	return slices.DeleteFunc(all, func(name string) bool { return l.nodes[name] == nil })
}

// terminators counts, by service, those that the file asks for.
func (l *Lab) terminators() map[ginnel.ServiceID]int {
	all := map[ginnel.ServiceID]int{}
	for _, s := range l.file.Services {
		all[ginnel.ServiceID(s.Name)] = len(s.Terminators)
	}
	for _, h := range l.file.Hosts {
		all[ginnel.ServiceID(h.Service)]++
	}
	return all
}

// Controller gives the controller of that name as it runs now.
func (l *Lab) Controller(name string) *controller.Controller {
	n, _ := l.nodes[name].(*controllerNode)
	if n == nil {
		return nil
	}
	return n.now.Load()
}

// Client gives the SDK client of a host or tunneler as it runs now.
func (l *Lab) Client(identity string) *sdk.Client {
	n := l.clients[identity]
	if n == nil {
		return nil
	}
	return n.now.Load()
}

// Identity gives the path of an identity's file.
func (l *Lab) Identity(name string) (string, error) {
	if l.file.identity(name) == nil {
		return "", l.unknown(name)
	}
	return filepath.Join(l.dir, "identities", name+".json"), nil
}

// Close ends all nodes and removes a temporary directory.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	for _, name := range l.names() {
		l.nodes[name].end()
	}
	l.ports.close()
	var problems []error
	if l.backend != nil {
		problems = append(problems, l.backend.Close())
	}
	if l.opts.Dir == "" && l.dir != "" {
		problems = append(problems, os.RemoveAll(l.dir))
	}
	return errors.Join(problems...)
}
