// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
)

// Options is how a Client works. The zero value is usable.
type Options struct {
	// DialNetwork opens the TCP connections to edge routers, for programs that
	// have to go through a proxy (see DialThrough); network is "tcp", address
	// HOST:PORT.
	// Nil: the operating system.
	DialNetwork func(ctx context.Context, network, address string) (net.Conn, error)
	// Log takes what goes on. Nil: nothing is logged.
	Log *slog.Logger
	// DialTimeout bounds dials whose context has no deadline. 0: 10 s.
	DialTimeout time.Duration
	// Memory bounds the bytes that all connections together may have buffered. Each
	// has LeastMemory from its beginning to its end, so it also bounds their number:
	// one more is BUSY. 0: DefaultMemory, which is enough for 8,192 that do little.
	Memory int64
	// NoResumption makes every dial do a full TLS handshake with the far end. A
	// dial that resumes the session of an earlier one to the same service takes
	// less than half of both ends' time for it, and checks the same.
	NoResumption bool
	// Spread takes any of the edge routers that are nearly as near as the nearest
	// one, by chance, in place of the nearest: so that many programs at one place do
	// not all use the same. Nearly is a difference of at most 2 ms or a tenth of the
	// round trip. Each service keeps the one it got as long as that stays good.
	Spread bool
	// Renewed is called, never twice at once, when the identity's certificate was
	// renewed or its edge routers changed: the place to Save it. May be nil.
	Renewed func(*Identity)
}

// sessions is for how many services the last TLS session is kept.
const sessions = 256

// errClientClosed is what those see who use a closed Client.
var errClientClosed = errors.New("client is closed")

// Client is a program's place on a network. Make one with New and keep it: it
// holds the connections to edge routers that all its circuits share.
type Client struct {
	opts    Options
	network transport.Network
	log     *slog.Logger
	holder  *pki.Holder
	self    ginnel.IdentityID
	domain  ginnel.NetworkID
	process string // random: this Client, for routers

	budget   *flow.Budget
	slabs    *endpoint.SlabPool
	sessions tls.ClientSessionCache // nil: none is kept
	hosting  *pki.CircuitServer
	shaken   endpoint.Handshakes

	edges    *edges
	services *services
	shunned  shunned
	circuits *circuits
	hosts    *hosts

	life context.Context // ends with Close
	end  context.CancelFunc

	telling sync.Mutex // held while Renewed is called

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// What Options.Memory is spent on.
const (
	DefaultMemory = 256 << 20
	LeastMemory   = flow.SlabSize + flow.InitialWindow // of a connection
)

// New gives a Client that begins at once to connect to the identity's edge
// routers; it waits for none of them. Close ends it. A certificate that has ended
// is renewed first; the error is that it ended too long ago for that.
func New(identity *Identity, opts Options) (*Client, error) {
	if identity == nil {
		return nil, errors.New("no identity given")
	}
	held := identity.held
	if err := tooLate(held.Credential); err != nil {
		return nil, err
	}
	c := &Client{
		opts:    opts,
		network: networkOf(opts),
		log:     cmp.Or(opts.Log, slog.New(slog.DiscardHandler)),
		holder:  pki.NewHolder(held.Credential),
		self:    identity.ID(),
		domain:  identity.Network(),
		process: rand.Text(),
		budget:  flow.NewBudget(cmp.Or(opts.Memory, DefaultMemory)),
		slabs:   endpoint.NewSlabPool(),
	}
	if !opts.NoResumption {
		c.sessions = tls.NewLRUClientSessionCache(sessions)
	}
	c.hosting = pki.NewCircuitServer(c.holder, time.Now)
	c.life, c.end = context.WithCancel(context.Background())
	c.circuits = newCircuits()
	c.hosts = newHosts(c)
	c.services = newServices(c)
	c.edges = newEdges(c, held.EdgeRouters)
	c.running.Go(func() { c.services.run(c.life) })
	c.running.Go(func() {
		c.revive(c.life)
		c.running.Go(func() { c.edges.loop.Run(c.life) })
		c.renew(c.life)
	})
	return c, nil
}

// spawn runs fn on a goroutine that Close waits for; false: the Client is closed.
func (c *Client) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Go(fn)
	return true
}

// Close ends the Client: its listeners, all its connections, at once, and its
// edge connections. When it returns, nothing of the Client runs any more. It may
// be called more than once. See Shutdown.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.hosts.close()
	c.circuits.abort()
	c.end()
	c.running.Wait()
	return nil
}

// Shutdown stops listening, waits until the connections that are open have ended
// and what was written to them is delivered, or until ctx ends, and closes the
// Client. The error is that of ctx, if it came first.
func (c *Client) Shutdown(ctx context.Context) error {
	c.hosts.close()
	err := c.circuits.wait(ctx)
	return errors.Join(err, c.Close())
}

// Identity gives the identity as it is now, with the certificate in use and the
// edge routers last heard of.
func (c *Client) Identity() *Identity {
	return &Identity{pki.Identity{Credential: c.holder.Load(), EdgeRouters: c.edges.list()}}
}

// Handshakes gives how many TLS handshakes with far ends were completed so far, by
// both dials and listeners: full ones, and those that resumed a session.
func (c *Client) Handshakes() (full, resumed uint64) { return c.shaken.Count() }

// EdgeRouters gives the edge routers that the identity may use, by id.
func (c *Client) EdgeRouters() []EdgeRouter { return c.edges.snapshot("") }

// networkOf gives where connections to edge routers come from.
func networkOf(opts Options) transport.Network {
	if opts.DialNetwork == nil {
		return transport.OS{}
	}
	return dialNetwork(opts.DialNetwork)
}

// dialNetwork is a transport.Network that only dials.
type dialNetwork func(ctx context.Context, network, address string) (net.Conn, error)

// Dial connects to hostport.
func (d dialNetwork) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	return d(ctx, "tcp", hostport)
}

// Listen fails: an SDK opens no port.
func (dialNetwork) Listen(string) (net.Listener, error) {
	return nil, errors.New("an SDK opens no port")
}
