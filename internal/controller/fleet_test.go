// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// fleetAddresses is how many ctrl listeners each router of a fleet has.
const fleetAddresses = 2

// fleet is many routers on loopback, each with its listeners, its key and its
// certificate, that speak Hello, Verdict and STATE_END over TLS and no more; and
// the witness of how a controller dials them.
type fleet struct {
	t       *testing.T
	ca      *pki.CA
	down    atomic.Bool // connections are closed as soon as they are accepted
	up      chan ginnel.RouterID
	ctx     context.Context
	running sync.WaitGroup

	mu      sync.Mutex
	routers []ginnel.Router
	conns   map[ginnel.RouterID]*transport.Conn
	at      map[string]place // by HOST:PORT
	// turn is the address that the rules of the machine say is next.
	turn    map[ginnel.RouterID]int
	dialing map[ginnel.RouterID]bool
	most    int // that were dialed at once
	dials   int
	wrong   []string
}

type place struct {
	id    ginnel.RouterID
	index int
}

func newFleet(t *testing.T, ca *pki.CA, n int) *fleet {
	f := &fleet{
		t: t, ca: ca, up: make(chan ginnel.RouterID, 4*n), conns: map[ginnel.RouterID]*transport.Conn{},
		at: map[string]place{}, turn: map[ginnel.RouterID]int{}, dialing: map[ginnel.RouterID]bool{},
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	t.Cleanup(func() { cancel(); f.running.Wait() })
	for i := range n {
		f.add(ginnel.RouterID(fmt.Sprintf("r%04d", i)))
	}
	return f
}

// add makes a router that listens.
func (f *fleet) add(id ginnel.RouterID) {
	f.t.Helper()
	c, err := NewCredential(f.ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: string(id)})
	if err != nil {
		f.t.Fatal(err)
	}
	holder := pki.NewHolder(c)
	server := transport.NewServer(transport.ServerConfig{
		TLS: pki.ServerConfig(holder, time.Now, wire.ALPNCtrl), Identify: transport.IdentifyBy(holder), Log: slog.New(slog.DiscardHandler),
		Protocols: map[string]transport.Protocol{wire.ALPNCtrl: {Frames: func(ctx context.Context, conn *transport.Conn) { f.serve(ctx, id, conn) }}},
	})
	router := ginnel.Router{ID: id, Key: c.KeyHash()}
	for i := range fleetAddresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.t.Fatal(err)
		}
		f.at[l.Addr().String()] = place{id, i}
		router.CtrlListeners = append(router.CtrlListeners, ginnel.Listener{Address: ginnel.Address("tls:" + l.Addr().String())})
		f.running.Go(func() { _ = server.Serve(f.ctx, closing{l, &f.down}) })
	}
	f.routers = append(f.routers, router)
}

// closing closes what it accepts while down is set.
type closing struct {
	net.Listener
	down *atomic.Bool
}

func (l closing) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil || !l.down.Load() {
			return c, err
		}
		_ = c.Close()
	}
}

// serve is a router's end of a ctrl channel.
func (f *fleet) serve(ctx context.Context, id ginnel.RouterID, conn *transport.Conn) {
	_, err := conn.Handshake(ctx, transport.Greeting{
		Self: string(id), Hello: &wire.Hello{Network: "acme", Boot: "b", Router: &wire.RouterHello{}},
	})
	if err != nil || conn.Notify(state(&wire.State{End: true})) != nil {
		return
	}
	f.mu.Lock()
	f.conns[id] = conn
	f.mu.Unlock()
	f.up <- id
	_ = conn.Run(ctx, deaf{})
}

// deaf takes everything and does nothing.
type deaf struct{}

func (deaf) Frame(*transport.Batch, wire.Header, []byte) error { return nil }
func (deaf) Message(*wire.Message) error                       { return nil }

// await waits until as many routers as there are have come up.
func (f *fleet) await(within time.Duration) {
	f.t.Helper()
	late := time.NewTimer(within)
	defer late.Stop()
	for n := range f.routers {
		select {
		case <-f.up:
		case <-late.C:
			f.t.Fatalf("%d of %d routers are up after %s", n, len(f.routers), within)
		}
	}
}

// drop ends all channels at once and lets nobody in.
func (f *fleet) drop() {
	f.down.Store(true)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		go conn.Close(nil)
	}
	clear(f.conns)
}

// Dial implements transport.Network for the controller, and holds each dial
// against the address whose turn it is.
func (f *fleet) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	f.mu.Lock()
	p := f.at[hostport]
	f.dials++
	if f.turn[p.id] != p.index {
		f.wrong = append(f.wrong, fmt.Sprintf("%s dialed at address %d, want %d", p.id, p.index, f.turn[p.id]))
	}
	if f.dialing[p.id] {
		f.wrong = append(f.wrong, fmt.Sprintf("%s dialed twice at once", p.id))
	}
	f.dialing[p.id] = true
	f.most = max(f.most, len(f.dialing))
	f.mu.Unlock()
	return transport.OS{}.Dial(ctx, hostport)
}

// Listen implements transport.Network.
func (f *fleet) Listen(string) (net.Listener, error) { return nil, errors.New("no port") }

// The controller's log tells the fleet every change of the machine, in order.
func (f *fleet) Enabled(context.Context, slog.Level) bool { return true }
func (f *fleet) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *fleet) WithGroup(string) slog.Handler            { return f }
func (f *fleet) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "dial state" {
		return nil
	}
	said := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { said[a.Key] = a.Value.String(); return true })
	id := ginnel.RouterID(said["router_id"])
	f.mu.Lock()
	defer f.mu.Unlock()
	if said["from"] == "Dialing" {
		delete(f.dialing, id)
	}
	switch said["why"] {
	case "dial failed", "connection lost soon", whyPoolFull:
		f.turn[id] = (f.turn[id] + 1) % fleetAddresses
	case "connection lost", "scanned", "updated":
		f.turn[id] = 0
	}
	return nil
}

// patience is how long a fleet is waited for. A machine with nothing else to do
// needs a tenth of it.
const patience = 3 * time.Minute

// control runs a controller of the fleet, with few workers and little patience, until
// the test ends.
func (f *fleet) control(t *testing.T, ca *pki.CA) *Controller {
	t.Helper()
	backend := mem.New()
	st, err := store.New(t.Context(), backend, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close(); _ = backend.Close() })
	if _, err := Found(t.Context(), st, ca); err != nil {
		t.Fatal(err)
	}
	for some := range slices.Chunk(f.routers, 50) {
		if _, err := st.Update(t.Context(), func(tx *store.Tx) error {
			for _, r := range some {
				if err := tx.Routers().Put(r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	own, err := NewCredential(ca, ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Dialer.DialDelay, cfg.Dialer.ScanSpread = 0, 0
	cfg.Dialer.MaxWorkers, cfg.Dialer.QueueSize = 32, len(f.routers)/4
	cfg.Dialer.MinRetryInterval, cfg.Dialer.MaxRetryInterval = 100*time.Millisecond, 2*time.Second
	cfg.Dialer.FastFailureWindow = 0 // whatever comes up counts as stable: all are due at once when they drop
	cfg.Dialer.ConnectTimeout = 15 * time.Second
	c, err := New(Options{Config: cfg, Holder: pki.NewHolder(own), CA: ca, Store: st, Network: f, Log: slog.New(f)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// 1,000 routers on real sockets drop at once, are away for a while, and come
// back: never more dials at once than there are workers, each router at the
// address whose turn it is, and all connected in the end.
func TestFleetDropsAndComesBack(t *testing.T) {
	n := 1000
	ca, err := pki.NewCA("acme", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, ca, n)
	c := f.control(t, ca)
	workers := c.cfg.Dialer.MaxWorkers
	begun := time.Now()
	f.await(patience)
	first := time.Since(begun)
	// Away until every router has been tried in vain once over.
	f.drop()
	f.awaitDials(t, f.dialed()+n)
	f.down.Store(false)
	begun = time.Now()
	f.await(patience)
	again := time.Since(begun)

	all, err := c.Backend().Dialer.ValidateDials(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Problem != "" || !d.Connected {
			t.Errorf("%s: connected %t: %s", d.Router, d.Connected, d.Problem)
		}
	}
	var stats dialer.Stats
	if err := c.dials.loop.Ask(t.Context(), func(m *dialer.Dialer) { stats = m.Stats() }); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most > workers || stats.MaxRunning > workers || f.most < workers/2 {
		t.Errorf("%d dials at once, the machine says %d, of %d workers", f.most, stats.MaxRunning, workers)
	}
	for i, wrong := range f.wrong {
		if i == 10 {
			t.Errorf("and %d more", len(f.wrong)-i)
			break
		}
		t.Error(wrong)
	}
	if stats.PoolFull == 0 || len(all) != n || stats.Conns != n {
		t.Errorf("%d routers, %d connections, %d times no place in the pool", len(all), stats.Conns, stats.PoolFull)
	}
	t.Logf("%d routers: connected in %v, after %d dials back in %v; at most %d at once; %d times no place", n, first, f.dials, again, f.most, stats.PoolFull)
}

func (f *fleet) dialed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// awaitDials waits until there have been so many dials.
func (f *fleet) awaitDials(t *testing.T, want int) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); f.dialed() < want; <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d dials, want %d", f.dialed(), want)
		}
	}
}
