// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/sdk"
)

// compromised is a router that was broken into, as one identity meets it, or one
// router at the far end of a link: it has the router's key, and does all that the
// router does, by asking it, but for what mischief changes.
type compromised struct {
	w       *world
	self    *pki.Credential    // the router's
	victim  *pki.Credential    // with which the real router is asked
	alpn    string             // of the connections between them
	hello   func() *wire.Hello // of the victim
	real    string             // HOST:PORT of the real router
	address string             // of this one

	mu   sync.Mutex
	list *wire.Controllers
	off  time.Duration   // what it adds to the clocks of controllers that it tells
	up   *transport.Conn // to the real router; the newest
	down *transport.Conn // to the victim
	// Mischief; nil: none. toRouter and toVictim change a request on its way, or
	// answer it; fromRouter and fromVictim change an answer.
	mischief
}

// mischief is what is changed. A function that changes a request may give the
// answer to it, which then comes from here.
type mischief struct {
	toRouter, toVictim     func(m *wire.Message) (answer *wire.Message)
	fromRouter, fromVictim func(request, answer *wire.Message)
	// frame gives what is passed on in place of a frame of a circuit; nil: that. It
	// is called by one goroutine for each direction.
	frame func(toVictim bool, h wire.Header, frame []byte) (instead [][]byte)
}

// compromise plays router to identity.
func (w *world) compromise(router, identity string) *compromised {
	w.t.Helper()
	self, err := w.RouterCredential(router)
	w.must(err)
	path, err := w.Identity(identity)
	w.must(err)
	file, err := pki.ReadIdentity(path)
	w.must(err)
	c := &compromised{w: w, self: self, victim: file.Credential, alpn: wire.ALPNEdge}
	c.hello = func() *wire.Hello {
		process := rand.Text()
		return &wire.Hello{Network: string(self.Network), Boot: process, Process: process}
	}
	c.listen(router)
	return c
}

// compromiseLink plays router to the one that dials the link between them.
func (w *world) compromiseLink(router, dials string) *compromised {
	w.t.Helper()
	self, err := w.RouterCredential(router)
	w.must(err)
	victim, err := w.RouterCredential(dials)
	w.must(err)
	c := &compromised{w: w, self: self, victim: victim, alpn: wire.ALPNLink}
	c.hello = func() *wire.Hello {
		return &wire.Hello{
			Network: string(self.Network), Boot: string(w.RouterStatus(dials).Boot),
			Link: string(ginnel.MakeLinkID(ginnel.RouterID(router), ginnel.RouterID(dials), "")),
		}
	}
	c.listen(router)
	return c
}

// listen begins to play router.
func (c *compromised) listen(router string) {
	w := c.w
	w.t.Helper()
	c.list = &wire.Controllers{}
	for _, r := range w.Status().Routers {
		if r.Name == router {
			c.real = ginnel.Address(r.Address).HostPort()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	c.address = l.Addr().String()
	holder := pki.NewHolder(c.self)
	server := transport.NewServer(transport.ServerConfig{
		TLS: pki.ServerConfig(holder, time.Now, c.alpn), Identify: transport.IdentifyBy(holder),
		Protocols: map[string]transport.Protocol{c.alpn: {Frames: c.serve}},
		Log:       slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ctx, l)
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// client gives a client of an identity that knows this router only.
func (c *compromised) client(identity string) *sdk.Client {
	return c.w.clientOver(identity, sdk.Options{DialNetwork: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != c.real {
			return nil, net.ErrClosed
		}
		return new(net.Dialer).DialContext(ctx, network, c.address)
	}})
}

// does sets the mischief until the returned function is called.
func (c *compromised) does(m mischief) (undo func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mischief = m
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mischief = mischief{}
	}
}

func (c *compromised) now() mischief {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mischief
}

func (c *compromised) controllers() *wire.Controllers {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := proto.CloneOf(c.list)
	for _, info := range list.GetControllers() {
		info.Clock += c.off.Nanoseconds()
	}
	return list
}

func (c *compromised) hears(list *wire.Controllers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = list
}

// serve joins a connection of the victim to one to the real router, which outlives
// it: a router that was broken into goes on as if the victim were still there.
func (c *compromised) serve(ctx context.Context, down *transport.Conn) {
	holder := pki.NewHolder(c.victim)
	router := ginnel.Peer{Role: ginnel.RoleRouter, ID: c.self.Self.ID}
	up, err := transport.DialFramed(ctx, transport.OS{}, c.real,
		pki.ClientConfig(holder, time.Now, router, c.alpn), transport.IdentifyBy(holder))
	if err != nil {
		return
	}
	up.SetProbing(transport.Probing{Heard: c.hears})
	hello := c.hello()
	there, err := up.Handshake(ctx, transport.Greeting{Self: c.victim.Self.ID, Hello: hello})
	if err != nil {
		return
	}
	c.hears(&wire.Controllers{Controllers: there.Verdict.GetControllers()})
	down.SetProbing(transport.Probing{Controllers: c.controllers})
	_, err = down.Handshake(ctx, transport.Greeting{
		Self: c.self.Self.ID,
		Hello: &wire.Hello{
			Network: string(c.self.Network), Boot: there.Hello.GetBoot(), Connection: there.Connection, Link: hello.GetLink(),
		},
		Decide: func(context.Context, *wire.Hello) *wire.Verdict {
			v := transport.Accept()
			v.Controllers = c.controllers().GetControllers()
			return v
		},
	})
	if err != nil {
		up.Close(nil)
		return
	}
	c.mu.Lock()
	c.up, c.down = up, down
	c.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = up.Run(ctx, &oneWay{
			from: up, to: down, running: &running, queues: map[uint32]*transport.Queue{},
			request: func(m *wire.Message) *wire.Message { return asked(c.now().toVictim, m) },
			answer:  func(q, a *wire.Message) { answered(c.now().fromVictim, q, a) },
			frame:   func(h wire.Header, f []byte) [][]byte { return c.twisted(true, h, f) },
		})
	})
	_ = down.Run(ctx, &oneWay{
		from: down, to: up, running: &running, queues: map[uint32]*transport.Queue{},
		request: func(m *wire.Message) *wire.Message { return asked(c.now().toRouter, m) },
		answer:  func(q, a *wire.Message) { answered(c.now().fromRouter, q, a) },
		frame:   func(h wire.Header, f []byte) [][]byte { return c.twisted(false, h, f) },
	})
}

func (c *compromised) twisted(toVictim bool, h wire.Header, frame []byte) [][]byte {
	if f := c.now().frame; f != nil {
		return f(toVictim, h, frame)
	}
	return [][]byte{frame}
}

func asked(f func(*wire.Message) *wire.Message, m *wire.Message) *wire.Message {
	if f == nil {
		return nil
	}
	return f(m)
}

func answered(f func(request, answer *wire.Message), q, a *wire.Message) {
	if f != nil {
		f(q, a)
	}
}

// oneWay carries what comes from one connection to the other.
type oneWay struct {
	from, to *transport.Conn
	running  *sync.WaitGroup
	queues   map[uint32]*transport.Queue
	request  func(m *wire.Message) *wire.Message
	answer   func(request, answer *wire.Message)
	frame    func(h wire.Header, frame []byte) (instead [][]byte)
}

// Frame passes a frame on.
func (o *oneWay) Frame(_ *transport.Batch, h wire.Header, frame []byte) error {
	q := o.queues[h.Label]
	if q == nil {
		q = o.to.NewQueue()
		o.queues[h.Label] = q
	}
	for _, f := range o.frame(h, frame) {
		_ = o.to.SendData(nil, q, f)
	}
	return nil
}

// Message passes a message on, and its answer back.
func (o *oneWay) Message(m *wire.Message) error {
	id := m.GetId()
	if id == 0 {
		// A Cancel names a request by another number than ours; an Unbind would end
		// what the router wants to keep.
		if m.GetCancel() == nil && m.GetUnbind() == nil {
			_ = o.to.Notify(m)
		}
		return nil
	}
	o.running.Go(func() {
		if answer := o.request(m); answer != nil {
			_ = o.from.Reply(id, answer)
			return
		}
		answer, err := o.to.Exchange(context.Background(), m, nil)
		if err != nil {
			answer = &wire.Message{Body: &wire.Message_Failure{Failure: wire.FailureOf(ginnel.Errorf(ginnel.RouterErrGeneric, "%s", err))}}
		} else {
			o.answer(m, answer)
		}
		_ = o.from.Reply(id, answer)
	})
	return nil
}

// flight is what somebody answers to a ClientHello who has the key of c.
func flight(c *pki.Credential, hello []byte, ticket *wire.Ticket) []byte {
	server := pki.NewCircuitServer(pki.NewHolder(c), time.Now)
	host := endpoint.NewHost(endpoint.Config{
		Budget: flow.NewBudget(1 << 20), Slabs: endpoint.NewSlabPool(),
		NewBatch: func() endpoint.Batch { return new(transport.Batch) },
		Wants:    func(flow.Want) {}, Ended: func(error) {},
	}, server.Config(ticket), hello, endpoint.Addr("x"), endpoint.Addr("y"))
	defer host.Fail(net.ErrClosed)
	out, _ := host.Flight()
	return out
}

// hostsLate hosts the service "late" with a client, and echoes.
func (w *world) hostsLate(c *sdk.Client) {
	w.t.Helper()
	l, err := c.Listen("late", sdk.ListenOptions{})
	w.must(err)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 64)
				n, _ := conn.Read(b)
				_, _ = conn.Write(b[:n])
				_ = conn.Close()
			}()
		}
	}()
	w.eventually(func() error {
		if n := len(w.terminators("c1", "late")); n != 1 {
			return errCount{n, 1}
		}
		return nil
	})
}

// inCompromised runs test in the diamond with a log that is searched.
func inCompromised(t *testing.T, test func(w *world, said *lines)) {
	t.Helper()
	said := new(lines)
	w := open(t, diamond, lab.Options{Plain: true, Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	test(w, said)
}
