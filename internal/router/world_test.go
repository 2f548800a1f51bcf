// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testNetwork = "test.example"

func controllerPeer(id string) ginnel.Peer {
	return ginnel.Peer{Role: ginnel.RoleController, ID: id}
}
func routerPeer(id string) ginnel.Peer   { return ginnel.Peer{Role: ginnel.RoleRouter, ID: id} }
func identityPeer(id string) ginnel.Peer { return ginnel.Peer{Role: ginnel.RoleIdentity, ID: id} }

// world is a network in memory with its authority. It is made inside a bubble of
// synctest; everything in it ends with the test.
type world struct {
	t   *testing.T
	net *pipe.Network
	ca  *pki.CA
	ctx context.Context
	wg  sync.WaitGroup
	// keys of routers, as a controller has them stored; only the test's goroutine
	// writes it.
	keys map[string]string
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca, err := pki.NewCA(testNetwork, time.Now().AddDate(-1, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{t: t, net: pipe.New(), ca: ca, ctx: ctx, keys: map[string]string{}}
		defer w.wg.Wait()
		defer cancel()
		test(w)
	})
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// issue gives a credential that was issued some time ago.
func (w *world) issue(peer ginnel.Peer, ago time.Duration) *pki.Credential {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := w.ca.Issue(time.Now().Add(-ago), peer, key.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, w.ca.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// enrolled gives memory that holds a credential.
func (w *world) enrolled(id string, ago time.Duration) *Memory {
	c := w.issue(routerPeer(id), ago)
	w.keys[id] = c.KeyHash()
	return &Memory{key: c.Key, credential: c}
}

// fresh gives memory without a certificate.
func (w *world) fresh() *Memory {
	m, err := NewMemory()
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// listening is the configuration of a router at host id.
func listening(id string) Config {
	return Config{Listen: id + ":7000", Advertise: []ginnel.Address{ginnel.Address("tls:" + id + ":7000")}}
}

// made makes a router at the host of its name.
func (w *world) made(host string, cfg Config, m Credentials, token *pki.Token) *Router {
	w.t.Helper()
	r, err := New(Options{
		Config: cfg, Network: w.net.Host(host), Credentials: m, Token: token,
		Log:    slog.New(slog.NewTextHandler(testLog{w.t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Random: rand.New(rand.NewPCG(1, uint64(len(host)))), Software: "test",
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// run runs a router; stop ends it and gives what Run returned.
func (w *world) run(r *Router) (stop func() error) {
	ctx, cancel := context.WithCancel(w.ctx)
	done := make(chan error, 1)
	w.wg.Go(func() { done <- r.Run(ctx) })
	synctest.Wait()
	return func() error {
		cancel()
		return <-done
	}
}

// router runs an enrolled router that listens.
func (w *world) router(id string) *Router {
	r := w.made(id, listening(id), w.enrolled(id, 0), nil)
	w.run(r)
	return r
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(string(b[:len(b)-1]))
	return len(b), nil
}

// double stands in for a controller: it dials and accepts routers, enrolls them
// and notes what they report.
type double struct {
	w        *world
	id       string
	holder   *pki.Holder
	registry *transport.Registry[string]
	groups   []string

	mu       sync.Mutex
	tokens   map[ginnel.Peer]*pki.Enrollment
	channels map[string]*doubleChannel // newest, by router
	enrolled int                       // certificates handed out
}

// doubleChannel is a double's end of a ctrl channel.
type doubleChannel struct {
	d     *double
	conn  *transport.Conn
	hello *wire.Hello

	mu        sync.Mutex
	pages     []*wire.State
	messages  []*wire.Message
	streams   map[uint64]*doubleStream
	relayWait sync.WaitGroup
}

// doubleStream is a stream that a router relays.
type doubleStream struct {
	in        chan []byte // what the router sent
	near, far net.Conn
}

func (w *world) controller(id string) *double {
	return w.controllerOf(id, w.issue(controllerPeer(id), 0))
}

func (w *world) controllerOf(id string, c *pki.Credential) *double {
	return &double{
		w: w, id: id, holder: pki.NewHolder(c), registry: transport.NewRegistry[string](1000),
		tokens: make(map[ginnel.Peer]*pki.Enrollment), channels: make(map[string]*doubleChannel),
	}
}

// token makes a token for a peer, and remembers it.
func (d *double) token(peer ginnel.Peer, life time.Duration, addresses ...ginnel.Address) *pki.Token {
	secret := pki.NewSecret()
	d.tokens[peer] = &pki.Enrollment{
		Network: testNetwork, Peer: peer, SecretHash: pki.SecretHash(secret), Expires: time.Now().Add(life),
	}
	return &pki.Token{
		Network: testNetwork, Peer: peer, Addresses: addresses, CA: pki.FingerprintOf(d.w.ca.Cert),
		Secret: secret, Expires: time.Now().Add(life),
	}
}

// listen accepts routers at an address.
func (d *double) listen(hostport string) {
	d.w.t.Helper()
	l, err := d.w.net.Host(d.id).Listen(hostport)
	if err != nil {
		d.w.t.Fatal(err)
	}
	s := transport.NewServer(transport.ServerConfig{
		TLS:      pki.ServerConfig(d.holder, time.Now, wire.ALPNCtrl, wire.ALPNEnroll),
		Identify: transport.IdentifyBy(d.holder),
		Protocols: map[string]transport.Protocol{
			wire.ALPNCtrl:   {Frames: func(ctx context.Context, c *transport.Conn) { _ = d.serve(ctx, c) }},
			wire.ALPNEnroll: {Stream: func(_ context.Context, c *tls.Conn) { _ = d.answer(c, ginnel.Peer{}) }},
		},
		Log: slog.New(slog.DiscardHandler),
	})
	d.w.wg.Go(func() { _ = s.Serve(d.w.ctx, l) })
}

// dial dials a router, enrolls it when it asks, and makes a ctrl channel.
func (d *double) dial(id string) error {
	want := routerPeer(id)
	cfg := pki.ClientConfig(d.holder, time.Now, want, wire.ALPNCtrl, wire.ALPNEnroll)
	for {
		t, err := transport.Dial(d.w.ctx, d.w.net.Host(d.id), id+":7000", cfg)
		if err != nil {
			return err
		}
		if t.ConnectionState().NegotiatedProtocol == wire.ALPNEnroll {
			err := d.answer(t, want)
			_ = t.Close()
			if err != nil {
				return err
			}
			continue
		}
		conn, err := transport.Framed(t, transport.IdentifyBy(d.holder))
		if err != nil {
			return err
		}
		up := make(chan error, 1)
		d.w.wg.Go(func() { up <- d.serveUp(d.w.ctx, conn, func() { up <- nil }) })
		return <-up
	}
}

// dials dials routers, which must work.
func (d *double) dials(ids ...string) {
	d.w.t.Helper()
	for _, id := range ids {
		if err := d.dial(id); err != nil {
			d.w.t.Fatal(err)
		}
	}
}

// answer answers one EnrollRequest.
func (d *double) answer(t *tls.Conn, dialed ginnel.Peer) error {
	m, err := transport.ReadMessage(t)
	if err != nil {
		return err
	}
	req := m.GetEnrollRequest()
	peer := ginnel.Peer{Role: ginnel.Role(req.GetRole()), ID: req.GetId()}
	if dialed.ID != "" && dialed != peer {
		return fmt.Errorf("wrong peer: %s", peer)
	}
	resp, err := d.grant(t.ConnectionState(), peer, req)
	if err != nil {
		f := wire.FailureOf(ginnel.Errorf(ginnel.NotAuthenticated, "%s", err))
		return errors.Join(err, transport.WriteMessage(t, &wire.Message{ReplyTo: m.GetId(), Body: &wire.Message_Failure{Failure: f}}))
	}
	return transport.WriteMessage(t, &wire.Message{ReplyTo: m.GetId(), Body: &wire.Message_EnrollResponse{EnrollResponse: resp}})
}

func (d *double) grant(cs tls.ConnectionState, peer ginnel.Peer, req *wire.EnrollRequest) (*wire.EnrollResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var g pki.Grant
	var err error
	if len(req.GetSecret()) == 0 && len(cs.PeerCertificates) > 0 {
		g, err = pki.AuthorizeRenewal(cs.PeerCertificates[0], d.w.ca.Cert, req, time.Now())
	} else if e := d.tokens[peer]; e != nil {
		if g, err = pki.Authorize(*e, req, time.Now()); err == nil {
			e.Key = g.KeyHash
		}
	} else {
		err = errors.New("no token")
	}
	if err != nil {
		return nil, err
	}
	leaf, err := d.w.ca.Issue(time.Now(), g.Peer, g.Public)
	if err != nil {
		return nil, err
	}
	d.enrolled++
	return &wire.EnrollResponse{Certificate: leaf.Raw, Ca: d.w.ca.Cert.Raw, Network: testNetwork}, nil
}

func (d *double) serve(ctx context.Context, conn *transport.Conn) error {
	return d.serveUp(ctx, conn, func() {})
}

// serveUp greets and runs a ctrl channel; up is called in between.
func (d *double) serveUp(ctx context.Context, conn *transport.Conn, up func()) error {
	number := d.registry.Next()
	id := conn.Peer().ID
	a, err := conn.Handshake(ctx, transport.Greeting{
		Self: d.id,
		Hello: &wire.Hello{
			Network: testNetwork, Boot: "boot-of-" + d.id, Connection: number,
			Clock: time.Now().Add(time.Minute).UnixNano(), Groups: d.groups,
		},
		Decide: func(ctx context.Context, _ *wire.Hello) *wire.Verdict {
			return d.registry.Admit(ctx, id, number, conn)
		},
	})
	if err != nil {
		return err
	}
	ch := &doubleChannel{d: d, conn: conn, hello: a.Hello, streams: make(map[uint64]*doubleStream)}
	d.mu.Lock()
	d.channels[id] = ch
	d.mu.Unlock()
	up()
	defer ch.relayWait.Wait()
	defer ch.closeStreams()
	return conn.Run(ctx, ch)
}

// channel gives the newest channel of a router.
func (d *double) channel(id string) *doubleChannel {
	d.w.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.channels[id] == nil {
		d.w.t.Fatalf("%s has no ctrl channel of %s", id, d.id)
	}
	return d.channels[id]
}

// Message notes what a router says, and serves streams that it relays.
func (ch *doubleChannel) Message(m *wire.Message) error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch body := m.GetBody().(type) {
	case *wire.Message_State:
		ch.pages = append(ch.pages, body.State)
	case *wire.Message_RelayOpen:
		s := &doubleStream{in: make(chan []byte, 1024)}
		s.near, s.far = net.Pipe()
		ch.streams[body.RelayOpen.GetStream()] = s
		ch.relayWait.Go(func() { ch.relayed(body.RelayOpen.GetStream(), s) })
	case *wire.Message_RelayData:
		if s := ch.streams[body.RelayData.GetStream()]; s != nil {
			s.in <- body.RelayData.GetData()
		}
	case *wire.Message_RelayClose:
		if s := ch.streams[body.RelayClose.GetStream()]; s != nil {
			delete(ch.streams, body.RelayClose.GetStream())
			close(s.in)
		}
	default:
		ch.messages = append(ch.messages, m)
	}
	return nil
}

func (ch *doubleChannel) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// relayed is the controller's end of a relayed stream.
func (ch *doubleChannel) relayed(stream uint64, s *doubleStream) {
	near, far := s.near, s.far
	ch.relayWait.Go(func() {
		for b := range s.in {
			_, _ = near.Write(b)
		}
		_ = near.Close()
	})
	ch.relayWait.Go(func() {
		t := tls.Server(far, pki.ServerConfig(ch.d.holder, time.Now, wire.ALPNEnroll))
		if t.Handshake() == nil {
			_ = ch.d.answer(t, ginnel.Peer{})
			_, _ = io.Copy(io.Discard, t)
		}
		_ = t.Close()
	})
	buf := make([]byte, 4096)
	for {
		n, err := near.Read(buf)
		if n > 0 {
			_ = ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Stream: stream, Data: buf[:n]}}})
		}
		if err != nil {
			break
		}
	}
	_ = ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayClose{RelayClose: &wire.RelayClose{Stream: stream}}})
}

func (ch *doubleChannel) closeStreams() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for id, s := range ch.streams {
		delete(ch.streams, id)
		close(s.in)
	}
}

// reported gives all pages so far.
func (ch *doubleChannel) reported() []*wire.State {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return slices.Clone(ch.pages)
}

// links gives the newest state of each link that was reported.
func (ch *doubleChannel) links() map[string]*wire.LinkState {
	all := make(map[string]*wire.LinkState)
	for _, page := range ch.reported() {
		for _, l := range page.GetLinks() {
			all[l.GetId()] = l
		}
	}
	return all
}

// configure sends a RouterConfig with these links, in one page.
func (ch *doubleChannel) configure(revision int64, targets ...*wire.LinkTarget) {
	ch.d.w.t.Helper()
	ch.send(&wire.RouterConfig{Revision: revision, Pages: 1, Links: targets})
}

// send sends a page; a link that says no key of its peer gets the stored one.
func (ch *doubleChannel) send(cfg *wire.RouterConfig) {
	ch.d.w.t.Helper()
	for _, t := range cfg.GetLinks() {
		t.Key = cmp.Or(t.Key, ch.d.w.keys[t.GetPeer()])
	}
	if err := ch.conn.Notify(&wire.Message{Body: &wire.Message_RouterConfig{RouterConfig: cfg}}); err != nil {
		ch.d.w.t.Fatal(err)
	}
}

// target is a link of self with peer, called name.
func target(self, peer, name string, dial bool) *wire.LinkTarget {
	return &wire.LinkTarget{
		Id:   string(ginnel.MakeLinkID(ginnel.RouterID(self), ginnel.RouterID(peer), name)),
		Peer: peer, Addresses: []string{"tls:" + peer + ":7000"}, StaticCost: int64(ginnel.Unit), Dial: dial,
	}
}

// linked gives two routers that a controller has linked.
func (w *world) linked() (c *double, r1, r2 *Router) {
	w.t.Helper()
	c = w.controller("c1")
	r1, r2 = w.router("r1"), w.router("r2")
	for _, id := range []string{"r1", "r2"} {
		c.dials(id)
	}
	c.channel("r1").configure(1, target("r1", "r2", "", true))
	c.channel("r2").configure(1, target("r2", "r1", "", false))
	return c, r1, r2
}

// until waits for a state of a router, at most for d.
func (w *world) until(r *Router, d time.Duration, what string, is func(Status) bool) {
	w.t.Helper()
	timeout := time.After(d)
	for {
		changed := r.Changed()
		if is(r.Status()) {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.t.Fatalf("router %s: not %s within %s: %+v", r.id, what, d, r.Status())
		}
	}
}

func measured(s Status) bool {
	return len(s.Links) > 0 && !slices.ContainsFunc(s.Links, func(l LinkStatus) bool { return !l.Up || !l.Measured })
}

func down(s Status) bool {
	return !slices.ContainsFunc(s.Links, func(l LinkStatus) bool { return l.Up })
}
