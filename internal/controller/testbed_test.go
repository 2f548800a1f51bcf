// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// testbed is a whole controller over a network in memory, with routers that
// speak wire and note what they hear. It lives in a bubble of synctest.
type testbed struct {
	*testing.T
	net     *pipe.Network
	ca      *pki.CA
	backend *mem.Backend
	store   *store.Store
	cfg     Config
	holder  *pki.Holder

	c       *Controller
	api     api.Backend
	stop    func()
	routers []*testRouter
	queries byte
}

// inTestbed runs test with a controller that runs, listens at c1:1, and dials
// without delay.
func inTestbed(t *testing.T, test func(t *testing.T, b *testbed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t)
		b.start()
		defer b.end()
		test(t, b)
	})
}

func (b *testbed) end() {
	b.stop()
	for _, r := range b.routers {
		r.close()
	}
	if err := b.store.Close(); err != nil {
		b.Error(err)
	}
	b.must(b.backend.Close())
}

func newTestbed(t *testing.T) *testbed {
	b := &testbed{T: t, net: pipe.New(), backend: mem.New(), cfg: DefaultConfig()}
	b.cfg.Listen = "tls:c1:1"
	b.cfg.Dialer.DialDelay = 0
	var err error
	if b.ca, err = pki.NewCA("acme", time.Now()); err != nil {
		t.Fatal(err)
	}
	if b.store, err = store.New(t.Context(), b.backend, store.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Found(t.Context(), b.store, b.ca); err != nil {
		t.Fatal(err)
	}
	b.holder = pki.NewHolder(b.credential(ginnel.RoleController, "c1"))
	return b
}

func (b *testbed) credential(role ginnel.Role, id string) *pki.Credential {
	b.Helper()
	c, err := NewCredential(b.ca, ginnel.Peer{Role: role, ID: id})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// start runs a controller; it may be called again after stop.
func (b *testbed) start() {
	b.Helper()
	c, err := New(Options{
		Config: b.cfg, Holder: b.holder, CA: b.ca, Store: b.store, Network: b.net.Host("c1"),
		Log: slog.New(slog.NewTextHandler(testLog{b.T}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			b.Errorf("controller ended: %v", err)
		}
	}()
	b.c, b.api = c, c.Backend()
	b.stop = func() { cancel(); <-done }
	synctest.Wait()
}

// testLog shows logs of a test that fails.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", p)
	return len(p), nil
}

// wait lets time pass.
func (b *testbed) wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (b *testbed) update(fn func(tx *store.Tx) error) {
	b.Helper()
	if _, err := b.store.Update(b.Context(), fn); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// must fails the test on an error.
func (b *testbed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

// identity makes an enrolled identity.
func (b *testbed) identity(id string, roles ...string) *pki.Credential {
	b.Helper()
	c := b.credential(ginnel.RoleIdentity, id)
	b.update(func(tx *store.Tx) error {
		return tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID(id), Roles: roles, Key: c.KeyHash()})
	})
	return c
}

func (b *testbed) service(id ginnel.ServiceID) {
	b.Helper()
	_, err := b.api.Services.Create(b.Context(), ginnel.Service{ID: id})
	b.must(err)
}

func (b *testbed) policy(id ginnel.PolicyID, kind ginnel.PolicyKind, identity, service string) {
	b.Helper()
	_, err := b.api.Policies.Create(b.Context(), ginnel.Policy{ID: id, Kind: kind, Identities: []string{identity}, Services: []string{service}})
	b.must(err)
}

// testRouter is a router as a controller sees it.
type testRouter struct {
	b      *testbed
	id     string
	holder *pki.Holder
	hello  *wire.RouterHello
	boot   string
	// mute: the state is not sent by itself.
	mute bool

	ctx    context.Context
	cancel func()
	all    sync.WaitGroup

	mu    sync.Mutex
	conns []*transport.Conn // that were accepted
	heard []*wire.Message
}

// router makes an enrolled router that is in the store with these listeners.
func (b *testbed) router(id string, listeners ...ginnel.Address) *testRouter {
	b.Helper()
	c := b.credential(ginnel.RoleRouter, id)
	r := &testRouter{b: b, id: id, holder: pki.NewHolder(c), boot: "boot-" + id, hello: &wire.RouterHello{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	b.routers = append(b.routers, r)
	record := ginnel.Router{ID: ginnel.RouterID(id), Key: c.KeyHash()}
	for _, a := range listeners {
		record.CtrlListeners = append(record.CtrlListeners, ginnel.Listener{Address: a})
		r.listen(a)
	}
	b.update(func(tx *store.Tx) error { return tx.Routers().Put(record) })
	return r
}

func (r *testRouter) close() {
	r.cancel()
	r.all.Wait()
}

// listen accepts ctrl channels at an address.
func (r *testRouter) listen(at ginnel.Address) {
	r.b.Helper()
	l, err := r.b.net.Host(r.id).Listen(at.HostPort())
	if err != nil {
		r.b.Fatal(err)
	}
	server := transport.NewServer(transport.ServerConfig{
		TLS:      pki.ServerConfig(r.holder, time.Now, wire.ALPNCtrl),
		Identify: transport.IdentifyBy(r.holder),
		Protocols: map[string]transport.Protocol{wire.ALPNCtrl: {Frames: func(ctx context.Context, conn *transport.Conn) {
			if r.greet(ctx, conn) == nil {
				_ = conn.Run(ctx, r)
			}
		}}},
		Log: slog.New(slog.DiscardHandler),
	})
	r.all.Go(func() { _ = server.Serve(r.ctx, l) })
}

// dial makes a ctrl channel to the controller.
func (r *testRouter) dial() error {
	cfg := pki.ClientConfig(r.holder, time.Now, ginnel.Peer{Role: ginnel.RoleController}, wire.ALPNCtrl)
	conn, err := transport.DialFramed(r.ctx, r.b.net.Host(r.id), "c1:1", cfg, transport.IdentifyBy(r.holder))
	if err != nil {
		return err
	}
	if err := r.greet(r.ctx, conn); err != nil {
		return err
	}
	r.all.Go(func() { _ = conn.Run(r.ctx, r) })
	synctest.Wait()
	return nil
}

func (r *testRouter) greet(ctx context.Context, conn *transport.Conn) error {
	_, err := conn.Handshake(ctx, transport.Greeting{
		Self:  r.id,
		Hello: &wire.Hello{Network: "acme", Boot: r.boot, Router: r.hello},
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.conns = append(r.conns, conn)
	r.mu.Unlock()
	if !r.mute {
		return conn.Notify(state(&wire.State{End: true}))
	}
	return nil
}

func state(s *wire.State) *wire.Message { return &wire.Message{Body: &wire.Message_State{State: s}} }

// Frame implements transport.Receiver.
func (r *testRouter) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// Message implements transport.Receiver.
func (r *testRouter) Message(m *wire.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, m)
	return nil
}

// conn gives the newest ctrl channel.
func (r *testRouter) conn() *transport.Conn {
	r.b.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) == 0 {
		r.b.Fatalf("router %s has no ctrl channel", r.id)
	}
	return r.conns[len(r.conns)-1]
}

// live gives the ctrl channels that have not ended.
func (r *testRouter) live() []*transport.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.conns), func(c *transport.Conn) bool { return c.Err() != nil })
}

// count gives how many ctrl channels have been accepted so far.
func (r *testRouter) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// report sends a page of state.
func (r *testRouter) report(s *wire.State) {
	r.b.Helper()
	r.b.must(r.conn().Notify(state(s)))
}

// request sends a request and gives its answer.
func (r *testRouter) request(m *wire.Message) (*wire.Message, error) {
	defer synctest.Wait()
	return r.conn().Request(r.ctx, m)
}

// take gives the messages of one kind that were heard since it was asked last.
func take[M proto.Message](r *testRouter, of func(*wire.Message) M) []M {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []M
	r.heard = slices.DeleteFunc(r.heard, func(m *wire.Message) bool {
		v := of(m)
		if !v.ProtoReflect().IsValid() {
			return false
		}
		list = append(list, v)
		return true
	})
	return list
}

// connected reports whether the controller has a channel with the router.
func (r *testRouter) connected() bool {
	r.b.Helper()
	shown, err := r.b.api.Routers.Get(r.b.Context(), r.id)
	if err != nil {
		r.b.Fatal(err)
	}
	return shown.Connected
}

// dialState gives what the operator sees of the router's dialing.
func (r *testRouter) dialState() api.Dial {
	r.b.Helper()
	d, err := r.b.api.Dialer.InspectDial(r.b.Context(), ginnel.RouterID(r.id))
	if err != nil {
		r.b.Fatal(err)
	}
	return d
}

// wantValid fails the test where store, channels and machine disagree.
func (b *testbed) wantValid() {
	b.Helper()
	all, err := b.api.Dialer.ValidateDials(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, d := range all {
		if d.Problem != "" {
			b.Errorf("router %s: %s", d.Router, d.Problem)
		}
	}
}

// enrollTLS connects to the controller's listener to enroll.
func (b *testbed) enrollTLS(cert *tls.Certificate) *tls.Conn {
	b.Helper()
	cfg := pki.EnrollClientConfig(cert, b.holder.Load().Anchor(), ginnel.Peer{Role: ginnel.RoleController}, time.Now)
	t, err := transport.Dial(b.Context(), b.net.Host("enrollee"), "c1:1", cfg)
	if err != nil {
		b.Fatal(err)
	}
	return t
}
