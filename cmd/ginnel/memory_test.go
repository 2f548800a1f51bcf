// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	crand "crypto/rand"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/sdk"
)

// memory is a whole network, controllers, routers and SDKs as they are, over the
// twins of the network and of the store, in a bubble of virtual time. Router R
// listens at R:1 and controllers dial it; names that begin with "server" are
// servers that echo at port 80.
type memory struct {
	*testing.T
	net     *pipe.Network
	ca      *pki.CA
	backend *mem.Backend
	store   *store.Store
	dir     string
	entropy entropy // of controllers

	ctrls   map[string]*memoryController
	routers map[string]*memoryRouter
	servers []net.Listener
	clients []*sdk.Client
	served  sync.WaitGroup // servers, watchers and their like

	mu     sync.Mutex
	events []told
}

// told is what a controller said of a circuit.
type told struct {
	api.CircuitEvent
	by string
}

type memoryController struct {
	*controller.Controller
	holder *pki.Holder
	store  *farStore
	audit  string // path of its audit log
	stop   func() // nil: it does not run
}

type memoryRouter struct {
	*router.Router
	credentials *router.Memory
	config      router.Config
	stop        func() // nil: it does not run
}

// entropy gives random bytes until it is spent.
type entropy struct{ spent atomic.Bool }

func (e *entropy) Read(p []byte) (int, error) {
	if e.spent.Load() {
		return 0, errors.New("no entropy is left")
	}
	return crand.Read(p)
}

// inMemory runs test with a store and no nodes.
func inMemory(t *testing.T, test func(m *memory)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{
			T: t, net: pipe.New(), backend: mem.New(), dir: dir,
			ctrls: map[string]*memoryController{}, routers: map[string]*memoryRouter{},
		}
		var err error
		m.ca, err = pki.NewCA("acme", time.Now().AddDate(-1, 0, 0))
		m.must(err)
		m.store, err = store.New(t.Context(), m.backend, store.Options{})
		m.must(err)
		_, err = controller.Found(t.Context(), m.store, m.ca)
		m.must(err)
		// Each identity has edge routers of its own.
		m.update(func(tx *store.Tx) error { return tx.Policies().Delete("all-edge-routers") })
		defer m.end()
		test(m)
	})
}

func (m *memory) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *memory) end() {
	m.backend.SetDown(false)
	for _, c := range m.clients {
		_ = c.Close()
	}
	for id := range m.routers {
		m.stopRouter(id)
	}
	for id := range m.ctrls {
		m.stopController(id)
	}
	for _, l := range m.servers {
		_ = l.Close()
	}
	m.served.Wait()
	_ = m.store.Close()
	_ = m.backend.Close()
}

// pass lets time pass.
func pass(d time.Duration) { time.Sleep(d) }

// wait lets time pass, and all that it makes due be done.
func (m *memory) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (m *memory) update(fn func(tx *store.Tx) error) {
	m.Helper()
	rev, err := m.store.Update(m.Context(), fn)
	m.must(err)
	m.must(m.store.WaitFor(m.Context(), rev))
	synctest.Wait()
}

// runs runs a node until stop is called.
func (m *memory) runs(what string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			m.Errorf("%s ended: %v", what, err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// controller starts a controller, for the first time or again.
func (m *memory) controller(id string) {
	m.Helper()
	n := m.ctrls[id]
	if n == nil {
		credential, err := controller.NewCredential(m.ca, ginnel.Peer{Role: ginnel.RoleController, ID: id})
		m.must(err)
		n = &memoryController{holder: pki.NewHolder(credential), store: &farStore{Backend: m.backend}, audit: filepath.Join(m.dir, id+".jsonl")}
		m.ctrls[id] = n
	}
	st, err := store.New(m.Context(), n.store, store.Options{})
	m.must(err)
	audit, err := controller.OpenAuditLog(n.audit)
	m.must(err)
	cfg := controller.DefaultConfig()
	cfg.Dialer.DialDelay = 0
	n.Controller, err = controller.New(controller.Options{
		Config: cfg, Holder: n.holder, CA: m.ca, Store: st, Network: m.net.Host(id),
		Log: slog.New(slog.DiscardHandler), Entropy: &m.entropy, Random: rand.New(rand.NewPCG(1, 2)), Audit: audit,
	})
	m.must(err)
	stop := m.runs("controller "+id, n.Run)
	ctx, cancel := context.WithCancel(context.Background())
	events := n.Backend().Circuits.WatchCircuits(ctx)
	m.served.Go(func() {
		for ev := range events {
			m.mu.Lock()
			m.events = append(m.events, told{ev, id})
			m.mu.Unlock()
		}
	})
	n.stop = func() {
		stop()
		cancel()
		_ = st.Close()
		_ = audit.Close()
	}
	synctest.Wait()
}

func (m *memory) stopController(id string) {
	if n := m.ctrls[id]; n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

// audited is satisfied when a line of a controller's audit log has the words.
func (m *memory) audited(id, words string) error {
	text, err := os.ReadFile(m.ctrls[id].audit)
	if err == nil && !strings.Contains(string(text), words) {
		err = fmt.Errorf("no line has %s: %s", words, text)
	}
	return err
}

// api gives a client of a controller's API, over HTTP without a network.
func (m *memory) api(id string) *api.Client {
	return api.NewClient(&http.Client{Transport: inProcess{m.ctrls[id].API()}}, "http://controller")
}

type inProcess struct{ handler http.Handler }

func (s inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// event gives what controllers said of a circuit that is meant; nil: nothing.
func (m *memory) event(meant func(api.CircuitEvent) bool) *api.CircuitEvent {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if meant(ev.CircuitEvent) {
			return &ev.CircuitEvent
		}
	}
	return nil
}

// router makes a router and starts it.
func (m *memory) router(id string, change func(*router.Config)) {
	m.Helper()
	credentials, err := router.NewMemory()
	m.must(err)
	key, err := credentials.Key()
	m.must(err)
	leaf, err := m.ca.Issue(time.Now(), ginnel.Peer{Role: ginnel.RoleRouter, ID: id}, key.Public())
	m.must(err)
	credential, err := pki.NewCredential(key, leaf, m.ca.Cert)
	m.must(err)
	m.must(credentials.Save(credential))
	at := ginnel.Address("tls:" + id + ":1")
	n := &memoryRouter{credentials: credentials, config: router.Config{Listen: id + ":1", Advertise: []ginnel.Address{at}}}
	if change != nil {
		change(&n.config)
	}
	m.routers[id] = n
	m.startRouter(id)
	m.update(func(tx *store.Tx) error {
		return tx.Routers().Put(ginnel.Router{
			ID: ginnel.RouterID(id), Key: credential.KeyHash(), CtrlListeners: []ginnel.Listener{{Address: at}},
		})
	})
}

func (m *memory) startRouter(id string) {
	m.Helper()
	n := m.routers[id]
	r, err := router.New(router.Options{
		Config: n.config, Network: egress{m.net.Host(id)}, Credentials: n.credentials,
		Log: slog.New(slog.DiscardHandler), Random: rand.New(rand.NewPCG(3, 4)),
	})
	m.must(err)
	n.Router, n.stop = r, m.runs("router "+id, r.Run)
	synctest.Wait()
}

func (m *memory) stopRouter(id string) {
	if n := m.routers[id]; n.stop != nil {
		n.stop()
		n.stop = nil
	}
}

// egress is a network that says what an operating system does of a name that
// does not exist, and of an address to which there is no route.
type egress struct{ *pipe.Host }

// Dial connects to hostport.
func (e egress) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	switch host, _, _ := net.SplitHostPort(hostport); host {
	case "nowhere.invalid":
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
	case "unreachable":
		return nil, &net.OpError{Op: "dial", Err: syscall.ENETUNREACH}
	}
	return e.Host.Dial(ctx, hostport)
}

// server echoes at NAME:80 until the test ends.
func (m *memory) server(name string) {
	m.Helper()
	l, err := m.net.Host(name).Listen(name + ":80")
	m.must(err)
	m.servers = append(m.servers, l)
	m.served.Go(func() { m.echoes(l) })
}

// echoes serves what says what it hears, until l is closed.
func (m *memory) echoes(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		m.served.Go(func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		})
	}
}

// identity makes an identity with edge routers.
func (m *memory) identity(id string, edges ...string) {
	m.Helper()
	m.identityAt(time.Now(), id, edges...)
}

// identityAt is identity, with a certificate that was issued then.
func (m *memory) identityAt(at time.Time, id string, edges ...string) {
	m.Helper()
	key, err := pki.NewKey()
	m.must(err)
	leaf, err := m.ca.Issue(at, ginnel.Peer{Role: ginnel.RoleIdentity, ID: id}, key.Public())
	m.must(err)
	credential, err := pki.NewCredential(key, leaf, m.ca.Cert)
	m.must(err)
	held := pki.Identity{Credential: credential}
	var routers []string
	for _, r := range edges {
		held.EdgeRouters = append(held.EdgeRouters, pki.EdgeRouter{ID: ginnel.RouterID(r), Address: ginnel.Address("tls:" + r + ":1")})
		routers = append(routers, "@"+r)
	}
	m.must(pki.WriteIdentity(filepath.Join(m.dir, id+".json"), held))
	m.update(func(tx *store.Tx) error {
		return errors.Join(
			tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID(id), Key: credential.KeyHash()}),
			tx.Policies().Put(ginnel.Policy{
				ID: ginnel.PolicyID("edge-" + id), Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + id}, Routers: routers,
			}))
	})
}

// client gives a client of an identity, which has connected.
func (m *memory) client(id string) *sdk.Client {
	m.Helper()
	host := m.net.Host(id)
	return m.clientOver(id, func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) })
}

func (m *memory) clientOver(id string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *sdk.Client {
	m.Helper()
	identity, err := sdk.LoadIdentity(filepath.Join(m.dir, id+".json"))
	m.must(err)
	c, err := sdk.New(identity, sdk.Options{DialNetwork: dial})
	m.must(err)
	m.clients = append(m.clients, c)
	m.wait(3 * time.Second)
	return c
}

// allow lets an identity dial or bind a service.
func (m *memory) allow(kind ginnel.PolicyKind, identity, service string) {
	m.Helper()
	m.update(func(tx *store.Tx) error {
		return tx.Policies().Put(ginnel.Policy{
			ID: ginnel.PolicyID(fmt.Sprint(kind, "-", identity, "-", service)), Kind: kind,
			Identities: []string{"@" + identity}, Services: []string{"@" + service},
		})
	})
}

// service makes a service that alice may dial and bob may host, with terminators
// given as ROUTER ADDRESS in turn.
func (m *memory) service(s ginnel.Service, terminators ...string) {
	m.Helper()
	m.update(func(tx *store.Tx) error {
		err := tx.Services().Put(s)
		for i := 0; i+1 < len(terminators); i += 2 {
			err = errors.Join(err, tx.Terminators().Put(ginnel.Terminator{
				ID: ginnel.TerminatorID(fmt.Sprintf("%s@%s", s.ID, terminators[i])), Service: s.ID,
				Router: ginnel.RouterID(terminators[i]), Address: ginnel.Address(terminators[i+1]), Precedence: ginnel.DefaultPrecedence,
			}))
		}
		return err
	})
	m.allow(ginnel.DialPolicy, "alice", string(s.ID))
	m.allow(ginnel.BindPolicy, "bob", string(s.ID))
}

// link lets two routers link.
func (m *memory) link(a, b string) {
	m.Helper()
	m.update(func(tx *store.Tx) error {
		return tx.Links().Put(ginnel.LinkSpec{A: ginnel.RouterID(a), B: ginnel.RouterID(b)})
	})
}

// dial dials and gives up after a time.
func (m *memory) dial(c *sdk.Client, service string, patience time.Duration, opts sdk.DialOptions) (*sdk.Conn, error) {
	ctx, cancel := context.WithTimeout(m.Context(), patience)
	defer cancel()
	return c.DialService(ctx, ginnel.ServiceID(service), opts)
}

// says wants what it writes back.
func (m *memory) says(conn net.Conn, text string) {
	m.Helper()
	_, err := io.WriteString(conn, text)
	m.must(err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(conn, got)
	m.must(err)
	if string(got) != text {
		m.Fatalf("got %q, want %q", got, text)
	}
}
