// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net"
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

// world is a network that speaks wire with SDKs: edge routers which carry frames
// from one edge connection to another, and one controller that all of them reach.
type world struct {
	ahead time.Duration // of the controller's clock, of ours
	t     *testing.T
	net   *pipe.Network
	ca    *pki.CA
	ctrl  *pki.Credential

	mu        sync.Mutex
	boot      string   // of the controller; empty: no router has a channel to it
	also      []string // other controllers, which are the same one by other names
	routers   map[string]*fakeRouter
	binds     map[string]fakeBind // by terminator
	circuits  map[string]*fakeCircuit
	attached  map[string]string    // circuit -> router
	strays    map[uint32]wire.Type // the last frame of a label that no row has
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
		circuits: map[string]*fakeCircuit{}, attached: map[string]string{}, strays: map[uint32]wire.Type{},
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
	if row == nil {
		c.r.w.strays[h.Label] = h.Type
	}
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
