// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// backlog is how many dialed connections wait for Accept.
const backlog = 1024

// Network is a network in memory, of hosts that are there once they are named.
type Network struct {
	mu        sync.Mutex
	port      int // given last
	listeners map[string]*listener
	latency   map[way]time.Duration // one way
	silent    map[way]bool
	conns     map[*link]struct{}
	changed   chan struct{} // closed when silence changes
}

// way is from one host to another; an empty name stands for any.
type way struct{ from, to string }

// link is a connection between two hosts: a dialed, b accepted.
type link struct {
	a, b   string
	ab, ba *half
	open   int // ends that are not closed
}

// New gives a network without listeners, faults or latency.
func New() *Network {
	return &Network{
		port:      49151,
		listeners: make(map[string]*listener),
		latency:   make(map[way]time.Duration),
		silent:    make(map[way]bool),
		conns:     make(map[*link]struct{}),
		changed:   make(chan struct{}),
	}
}

// Host is a Network as one host sees it: what it dials comes from name, what
// it listens on belongs to name.
type Host struct {
	network *Network
	name    string
}

// Host gives the host called name.
func (n *Network) Host(name string) *Host { return &Host{network: n, name: name} }

// Dial connects from a host without a name.
func (n *Network) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	return n.Host("").Dial(ctx, hostport)
}

// Listen listens at the host that hostport names.
func (n *Network) Listen(hostport string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	return n.Host(host).Listen(hostport)
}

// SetLatency gives connections between a and b, old and new, a round-trip time,
// half of it each way.
func (n *Network) SetLatency(a, b string, rtt time.Duration) {
	n.change(func() {
		n.latency[way{a, b}] = rtt / 2
		n.latency[way{b, a}] = rtt / 2
	})
}

// Silence keeps all that from sends from arriving at to, until Resume. An empty
// name stands for any host. Both ways: call it twice.
func (n *Network) Silence(from, to string) { n.change(func() { n.silent[way{from, to}] = true }) }

// Resume ends what Silence began with the same names.
func (n *Network) Resume(from, to string) { n.change(func() { delete(n.silent, way{from, to}) }) }

// Cut resets all connections between a and b; an empty b stands for any host.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.conns {
		if l.a == a && (b == "" || l.b == b) || l.b == a && (b == "" || l.a == b) {
			l.ab.cut()
			l.ba.cut()
		}
	}
}

func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	for l := range n.conns {
		l.ab.setLatency(n.latency[way{l.a, l.b}])
		l.ba.setLatency(n.latency[way{l.b, l.a}])
		l.ab.setSilent(n.silentLocked(l.a, l.b))
		l.ba.setSilent(n.silentLocked(l.b, l.a))
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *Network) silentLocked(from, to string) bool {
	return n.silent[way{from, to}] || n.silent[way{from, ""}] || n.silent[way{"", to}]
}

// Dial connects to a listener's address. It takes one round trip, and as long
// as a silence in either direction lasts.
func (h *Host) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	n := h.network
	for {
		n.mu.Lock()
		l := n.listeners[hostport]
		if l == nil {
			n.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: addr(hostport), Err: syscall.ECONNREFUSED}
		}
		silent := n.silentLocked(h.name, l.host) || n.silentLocked(l.host, h.name)
		rtt := n.latency[way{h.name, l.host}] + n.latency[way{l.host, h.name}]
		changed := n.changed
		n.mu.Unlock()
		if !silent {
			if err := sleep(ctx, rtt); err != nil {
				return nil, err
			}
			return h.connect(l, hostport)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: addr(hostport), Err: ctx.Err()}
		}
	}
}

func (h *Host) connect(l *listener, hostport string) (net.Conn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.port++
	k := &link{
		a: h.name, b: l.host, open: 2,
		ab: newHalf(socketBuffer, n.latency[way{h.name, l.host}], n.silentLocked(h.name, l.host)),
		ba: newHalf(socketBuffer, n.latency[way{l.host, h.name}], n.silentLocked(l.host, h.name)),
	}
	from := addr(net.JoinHostPort(h.name, strconv.Itoa(n.port)))
	a, b := join(k.ab, k.ba, from, addr(hostport))
	closed := func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if k.open--; k.open == 0 {
			delete(n.conns, k)
		}
	}
	a.onClose, b.onClose = closed, closed
	select {
	case <-l.closed:
	case l.queue <- b:
		n.conns[k] = struct{}{}
		return a, nil
	default:
	}
	return nil, &net.OpError{Op: "dial", Net: "pipe", Addr: addr(hostport), Err: syscall.ECONNREFUSED}
}

// Listen listens on hostport; a port of 0 is replaced by a free one.
func (h *Host) Listen(hostport string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, err
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == "0" {
		n.port++
		hostport = net.JoinHostPort(host, strconv.Itoa(n.port))
	}
	if n.listeners[hostport] != nil {
		return nil, fmt.Errorf("listen %s: %w", hostport, syscall.EADDRINUSE)
	}
	l := &listener{network: n, host: h.name, addr: addr(hostport), queue: make(chan *conn, backlog), closed: make(chan struct{})}
	n.listeners[hostport] = l
	return l, nil
}

type listener struct {
	network *Network
	host    string
	addr    addr
	queue   chan *conn
	once    sync.Once
	closed  chan struct{}
}

// Accept gives the next connection.
func (l *listener) Accept() (net.Conn, error) {
	if isClosed(l.closed) {
		return nil, net.ErrClosed
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; what waits is closed.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, string(l.addr))
		close(l.closed)
		l.network.mu.Unlock()
		for {
			select {
			case c := <-l.queue:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr gives the address that can be dialed.
func (l *listener) Addr() net.Addr { return l.addr }

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
