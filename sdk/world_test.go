// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a network that speaks wire with SDKs: edge routers which carry frames
// from one edge connection to another, and one controller that all of them reach.
type world struct {
	t    *testing.T
	net  *pipe.Network
	ca   *pki.CA
	ctrl *pki.Credential

	mu        sync.Mutex
	boot      string   // of the controller; empty: no router has a channel to it
	also      []string // other controllers, which are the same one by other names
	routers   map[string]*fakeRouter
	binds     map[string]fakeBind // by terminator
	circuits  map[string]*fakeCircuit
	attached  map[string]string // circuit -> router
	dials     []*wire.Dial
	resumes   []*wire.Resume
	cancelled int
	unbinds   int
	lists     []func() // send the list to a subscriber again
	services  []*wire.ServiceInfo
	edges     []*wire.EdgeRouterInfo
	labels    uint32
	// judge decides about a dial before it is routed; nil: fine.
	judge func(d *wire.Dial) *wire.Failure
	// mangle changes a ticket before it is signed; nil: nothing.
	mangle func(*wire.Ticket)
	// hold: dials are not answered.
	hold bool
}

type fakeBind struct {
	conn    *fakeConn
	bind    *wire.Bind
	host    string
	request *wire.BindRequest // the last
}

type fakeCircuit struct {
	ticket     *wire.Signed
	terminator string
	router     string
}

type fakeRouter struct {
	w      *world
	id     string
	holder *pki.Holder
	boot   string
	reg    *transport.Registry[string]
	stop   func()
	conns  map[*fakeConn]struct{}
}

// fakeConn is an edge connection at its router.
type fakeConn struct {
	r    *fakeRouter
	conn *transport.Conn
	rows map[uint32]*fakeRow // under world.mu
}

// place is where frames go: a connection, and the label that they get.
type place struct {
	conn  *fakeConn
	label uint32
}

type fakeRow struct {
	to    place
	queue *transport.Queue
}

func newWorld(t *testing.T, routers ...string) *world {
	t.Helper()
	ca, err := pki.NewCA("test.example", time.Now().AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, net: pipe.New(), ca: ca, boot: "b1",
		routers: map[string]*fakeRouter{}, binds: map[string]fakeBind{},
		circuits: map[string]*fakeCircuit{}, attached: map[string]string{},
	}
	w.ctrl = w.issue(ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
	for _, id := range routers {
		w.edges = append(w.edges, &wire.EdgeRouterInfo{Id: id, Address: "tls:" + id + ":1"})
		w.start(id)
	}
	t.Cleanup(func() {
		for id := range w.routers {
			w.kill(id)
		}
	})
	return w
}

func (w *world) issue(peer ginnel.Peer) *pki.Credential {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := w.ca.Issue(time.Now(), peer, key.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, w.ca.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// client gives a Client of an identity that knows all edge routers.
func (w *world) client(name string) *Client { return w.clientWith(name, Options{}) }

func (w *world) clientWith(name string, opts Options) *Client {
	w.t.Helper()
	held := pki.Identity{Credential: w.issue(ginnel.Peer{Role: ginnel.RoleIdentity, ID: name})}
	for _, e := range w.edges {
		held.EdgeRouters = append(held.EdgeRouters, pki.EdgeRouter{ID: ginnel.RouterID(e.GetId()), Address: ginnel.Address(e.GetAddress())})
	}
	return w.clientOf(&Identity{held}, opts)
}

func (w *world) clientOf(identity *Identity, opts Options) *Client {
	w.t.Helper()
	host := w.net.Host(string(identity.ID()))
	opts.DialNetwork = func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) }
	opts.Log = slog.New(slog.NewTextHandler(testWriter{w.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := New(identity, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// start starts a router with a new boot id.
func (w *world) start(id string) {
	w.startAs(id, rand.Text())
}

func (w *world) startAs(id, boot string) {
	w.t.Helper()
	r := &fakeRouter{
		w: w, id: id, boot: boot,
		holder: pki.NewHolder(w.issue(ginnel.Peer{Role: ginnel.RoleRouter, ID: id})),
		reg:    transport.NewRegistry[string](uint64(time.Now().UnixMicro())),
		conns:  map[*fakeConn]struct{}{},
	}
	l, err := w.net.Host(id).Listen(id + ":1")
	if err != nil {
		w.t.Fatal(err)
	}
	s := transport.NewServer(transport.ServerConfig{
		TLS: pki.ServerConfig(r.holder, time.Now, wire.ALPNEdge, wire.ALPNEnroll), Identify: transport.IdentifyBy(r.holder),
		Protocols: map[string]transport.Protocol{
			wire.ALPNEdge:   {Frames: r.serve},
			wire.ALPNEnroll: {Stream: r.relay},
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx, l)
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	w.mu.Lock()
	w.routers[id] = r
	w.mu.Unlock()
}

// kill ends a router, all its connections and listener, as a killed process does.
func (w *world) kill(id string) {
	w.mu.Lock()
	r := w.routers[id]
	delete(w.routers, id)
	w.mu.Unlock()
	if r != nil {
		r.stop()
	}
}

func (w *world) controllers() *wire.Controllers {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.boot == "" {
		return &wire.Controllers{}
	}
	list := new(wire.Controllers)
	for _, id := range append([]string{"c1"}, w.also...) {
		list.Controllers = append(list.Controllers, &wire.ControllerInfo{Id: id, Boot: w.boot, Clock: time.Now().UnixNano()})
	}
	return list
}

// serve is one edge connection.
func (r *fakeRouter) serve(ctx context.Context, conn *transport.Conn) {
	c := &fakeConn{r: r, conn: conn, rows: map[uint32]*fakeRow{}}
	conn.SetProbing(transport.Probing{Controllers: r.w.controllers})
	number := r.reg.Next()
	_, err := conn.Handshake(ctx, transport.Greeting{
		Self:  r.id,
		Hello: &wire.Hello{Network: "test.example", Boot: r.boot, Connection: number},
		Decide: func(ctx context.Context, hello *wire.Hello) *wire.Verdict {
			v := r.reg.Admit(ctx, conn.Peer().ID+"/"+hello.GetProcess(), number, conn)
			v.Controllers = r.w.controllers().GetControllers()
			return v
		},
	})
	if err != nil {
		return
	}
	_ = conn.Run(ctx, c)
	r.w.lost(c)
}

// lost takes a connection that has ended out of the world.
func (w *world) lost(c *fakeConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, b := range w.binds {
		if b.conn == c {
			delete(w.binds, id)
		}
	}
	for _, row := range c.rows {
		_ = row.to.conn.conn.SendData(nil, row.queue, wire.AppendFrame(nil, row.to.label, wire.PathBroken, 0, nil))
	}
}

// Frame carries a frame on.
func (c *fakeConn) Frame(_ *transport.Batch, h wire.Header, frame []byte) error {
	c.r.w.mu.Lock()
	row := c.rows[h.Label]
	c.r.w.mu.Unlock()
	if row == nil {
		return nil
	}
	wire.PutLabel(frame, row.to.label)
	_ = row.to.conn.conn.SendData(nil, row.queue, frame)
	return nil
}

// Message does what a router and the controller behind it do.
func (c *fakeConn) Message(m *wire.Message) error {
	w := c.r.w
	switch body := m.GetBody().(type) {
	case *wire.Message_DialRequest:
		go w.dial(c, m.GetId(), body.DialRequest.GetDial())
	case *wire.Message_ResumeRequest:
		go w.resume(c, m.GetId(), body.ResumeRequest.GetResume())
	case *wire.Message_ServicesRequest:
		w.subscribe(c, m.GetId(), body.ServicesRequest.GetQuery())
	case *wire.Message_BindRequest:
		return w.bind(c, m.GetId(), body.BindRequest)
	case *wire.Message_Unbind:
		w.mu.Lock()
		w.unbinds++
		delete(w.binds, body.Unbind.GetTerminator())
		w.mu.Unlock()
	case *wire.Message_AttachRequest:
		var a wire.Attach
		if _, err := pki.OpenInto(body.AttachRequest.GetAttach(), wire.DomainAttach, w.ca.Cert, time.Now(), &a, ginnel.RoleIdentity); err != nil {
			return err
		}
		t, err := pki.ReopenTicket(a.GetTicket(), w.ca.Cert)
		if err != nil {
			return err
		}
		w.mu.Lock()
		w.attached[t.GetCircuit()] = c.r.id
		w.mu.Unlock()
		return c.conn.ReplyDone(m.GetId())
	case *wire.Message_Cancel:
		w.mu.Lock()
		w.cancelled++
		w.mu.Unlock()
	}
	return nil
}

// refuse answers a request; nil errors are for those who are gone.
func (c *fakeConn) refuse(id uint64, f *wire.Failure) {
	_ = c.conn.Reply(id, &wire.Message{Body: &wire.Message_Failure{Failure: f}})
}

func fail(code ginnel.Code, text string) *wire.Failure {
	return wire.FailureOf(ginnel.Errorf(code, "%s", text))
}

// check verifies a signed request as a controller does.
func (w *world) check(c *fakeConn, s *wire.Signed, domain string, into interface {
	proto.Message
	GetRouter() string
	GetAudience() *wire.Audience
},
) *wire.Failure {
	signer, err := pki.OpenInto(s, domain, w.ca.Cert, time.Now(), into, ginnel.RoleIdentity)
	switch {
	case err != nil:
		return fail(ginnel.NotAuthenticated, err.Error())
	case signer.Peer != c.conn.Peer() || into.GetRouter() != c.r.id:
		return fail(ginnel.NotAuthenticated, "signed by or for another")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	off := time.Since(time.Unix(0, into.GetAudience().GetClock())).Abs()
	if into.GetAudience().GetBoot() != w.boot || off > time.Minute {
		f := fail(ginnel.NotAuthenticated, "another audience")
		f.Audience = &wire.ControllerInfo{Id: "c1", Boot: w.boot, Clock: time.Now().UnixNano()}
		return f
	}
	return nil
}

func (w *world) dial(c *fakeConn, id uint64, s *wire.Signed) {
	var d wire.Dial
	if f := w.check(c, s, wire.DomainDial, &d); f != nil {
		c.refuse(id, f)
		return
	}
	w.mu.Lock()
	w.dials = append(w.dials, &d)
	judge, hold, mangle := w.judge, w.hold, w.mangle
	var terminator string
	var host fakeBind
	for name, b := range w.binds {
		if b.bind.GetService() == d.GetService() && (terminator == "" || name < terminator) {
			terminator, host = name, b
		}
	}
	w.mu.Unlock()
	if hold {
		return
	}
	if judge != nil {
		if f := judge(&d); f != nil {
			c.refuse(id, f)
			return
		}
	}
	if terminator == "" {
		c.refuse(id, fail(ginnel.NoTerminators, "nobody hosts "+d.GetService()))
		return
	}
	t := &wire.Ticket{
		Network: "test.example", Circuit: rand.Text(), Service: d.GetService(), Client: c.conn.Peer().ID,
		PeerRole: "identity", Peer: host.host, Terminator: terminator, Router: host.conn.r.id,
		DialHash: pki.DialHash(s.GetPayload()), Issued: time.Now().UnixNano(),
		Source: d.GetSource(), Destination: d.GetDestination(),
	}
	if mangle != nil {
		mangle(t)
	}
	ticket, err := pki.SignTicket(w.ctrl, t)
	if err != nil {
		w.t.Error(err)
		return
	}
	x := &fakeCircuit{ticket: ticket, terminator: terminator, router: host.conn.r.id}
	w.mu.Lock()
	w.circuits[t.GetCircuit()] = x
	w.mu.Unlock()
	w.route(c, id, host.conn, t, x, &wire.HostDial{
		Generation: 1, Early: d.GetEarly(), DeadlineMs: d.GetDeadlineMs(),
	})
}

// route makes rows between two edge connections, asks the host, answers the client.
func (w *world) route(c *fakeConn, id uint64, host *fakeConn, t *wire.Ticket, x *fakeCircuit, hd *wire.HostDial) {
	client, server := w.join(c, host)
	hd.Circuit, hd.Terminator, hd.Service, hd.Ticket = t.GetCircuit(), x.terminator, t.GetService(), x.ticket
	hd.SendLabel, hd.ArriveLabel = server[0], server[1]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answer, err := host.conn.Request(ctx, &wire.Message{Body: &wire.Message_HostDial{HostDial: hd}})
	if err != nil {
		if d, ok := errors.AsType[*ginnel.DialError](err); ok {
			c.refuse(id, wire.FailureOf(d))
		} else {
			c.refuse(id, fail(ginnel.RouterResponseTimeout, err.Error()))
		}
		return
	}
	_ = c.conn.Reply(id, &wire.Message{Body: &wire.Message_DialResponse{DialResponse: &wire.DialResponse{
		Circuit: t.GetCircuit(), Generation: hd.GetGeneration(), Ticket: x.ticket,
		Early: answer.GetHostDialResult().GetEarly(), SendLabel: client[0], ArriveLabel: client[1],
		Path: []string{c.r.id, host.r.id}, Links: []string{"a/b/0"},
		Explain: &wire.Explain{Candidates: []*wire.Candidate{{Terminator: x.terminator, Chosen: true}}},
	}}})
}

// join makes the rows of a path, and gives for each end the label that it sends
// with and the one that its frames arrive with.
func (w *world) join(a, b *fakeConn) (forA, forB [2]uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.labels += 4
	n := w.labels
	a.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, true))
	b.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, true))
	a.rows[n] = &fakeRow{place{b, n + 1}, b.conn.NewQueue()}
	b.rows[n+2] = &fakeRow{place{a, n + 3}, a.conn.NewQueue()}
	return [2]uint32{n, n + 3}, [2]uint32{n + 2, n + 1}
}

func (w *world) resume(c *fakeConn, id uint64, s *wire.Signed) {
	var m wire.Resume
	if f := w.check(c, s, wire.DomainResume, &m); f != nil {
		c.refuse(id, f)
		return
	}
	t, err := pki.ReopenTicket(m.GetTicket(), w.ca.Cert)
	if err != nil {
		c.refuse(id, fail(ginnel.NotAuthenticated, err.Error()))
		return
	}
	w.mu.Lock()
	w.resumes = append(w.resumes, &m)
	x := w.circuits[t.GetCircuit()]
	at := x.router
	if to := w.attached[t.GetCircuit()]; to != "" {
		at = to
	}
	var host *fakeConn
	for _, b := range w.binds {
		if b.conn.r.id == at && b.host == t.GetPeer() {
			host = b.conn
		}
	}
	w.mu.Unlock()
	if host == nil {
		c.refuse(id, fail(ginnel.PeerDetached, "host is not at "+at))
		return
	}
	w.route(c, id, host, t, x, &wire.HostDial{Generation: 256*m.GetNumber() + 1, Resume: true, DeadlineMs: m.GetDeadlineMs()})
}

func (w *world) bind(c *fakeConn, id uint64, request *wire.BindRequest) error {
	var b wire.Bind
	s := request.GetBind()
	signer, err := pki.OpenInto(s, wire.DomainBind, w.ca.Cert, time.Now(), &b, ginnel.RoleIdentity)
	if err != nil {
		return err
	}
	terminator := string(wire.BindTerminatorID(&b, ginnel.IdentityID(signer.Peer.ID), s.GetPayload()))
	w.mu.Lock()
	w.binds[terminator] = fakeBind{c, &b, signer.Peer.ID, request}
	w.mu.Unlock()
	return c.conn.Reply(id, &wire.Message{Body: &wire.Message_BindResponse{BindResponse: &wire.BindResponse{Terminator: terminator}}})
}

func (w *world) subscribe(c *fakeConn, id uint64, s *wire.Signed) {
	var q wire.ServiceQuery
	if f := w.check(c, s, wire.DomainServices, &q); f != nil {
		c.refuse(id, f)
		return
	}
	sequence := uint64(0)
	send := func() { // under w.mu
		sequence++
		pages := []*wire.ServiceList{{Routers: w.edges}}
		for _, info := range w.services { // one a page
			pages = append(pages, &wire.ServiceList{Services: []*wire.ServiceInfo{info}})
		}
		for i, p := range pages {
			p.Identity, p.Nonce, p.Sequence = c.conn.Peer().ID, q.GetAudience().GetNonce(), sequence
			p.Page, p.Pages = uint32(i), uint32(len(pages))
			signed, err := pki.Sign(w.ctrl, wire.DomainServiceList, p)
			if err != nil {
				w.t.Error(err)
			}
			_ = c.conn.Notify(&wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: signed}}})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, send)
	send()
	_ = c.conn.ReplyDone(id)
}

// serve changes the list of services and tells all subscribers.
func (w *world) serve(services ...*wire.ServiceInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services = services
	for _, send := range w.lists {
		send()
	}
}

// relay takes an enrollee: inside its stream TLS with the controller.
func (r *fakeRouter) relay(ctx context.Context, outer *tls.Conn) {
	inner := tls.Server(outer, pki.ServerConfig(pki.NewHolder(r.w.ctrl), time.Now, wire.ALPNEnroll))
	if err := inner.HandshakeContext(ctx); err != nil {
		return
	}
	m, err := transport.ReadMessage(inner)
	if err != nil {
		return
	}
	req := m.GetEnrollRequest()
	grant, err := pki.Authorize(pki.Enrollment{
		Network: "test.example", Peer: ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"},
		SecretHash: pki.SecretHash(tokenSecret()), Expires: time.Now().Add(time.Hour),
	}, req, time.Now())
	if leaf := outer.ConnectionState().PeerCertificates; err != nil && len(leaf) > 0 {
		grant, err = pki.AuthorizeRenewal(leaf[0], r.w.ca.Cert, req, time.Now())
	}
	answer := &wire.Message{ReplyTo: m.GetId()}
	if err != nil {
		answer.Body = &wire.Message_Failure{Failure: fail(ginnel.NotAuthenticated, err.Error())}
	} else if cert, err := r.w.ca.Issue(time.Now(), grant.Peer, grant.Public); err == nil {
		answer.Body = &wire.Message_EnrollResponse{EnrollResponse: &wire.EnrollResponse{
			Certificate: cert.Raw, Ca: r.w.ca.Cert.Raw, Network: "test.example", Routers: r.w.edges,
		}}
	}
	_ = transport.WriteMessage(inner, answer)
	_, _ = io.Copy(io.Discard, inner)
}

func tokenSecret() pki.Secret { return slices.Repeat([]byte{7}, pki.SecretSize) }

// echo hosts a service that says what it hears.
func echo(t *testing.T, c *Client, service string, opts ListenOptions) *Listener {
	t.Helper()
	l, err := c.Listen(service, opts)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	<-l.Bound()
	synctest.Wait()
	return l
}

func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// codeOf gives the code of a dial's error as callers find it.
func codeOf(t *testing.T, err error) ginnel.Code {
	t.Helper()
	var d *ginnel.DialError
	if !errors.As(err, &d) {
		t.Fatalf("got %v, want a *ginnel.DialError", err)
	}
	if !errors.Is(err, d.Code) {
		t.Errorf("%v is not its own code", err)
	}
	return d.Code
}

func within10s(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pass lets the time of the bubble pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
