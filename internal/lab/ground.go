// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
)

// ground is the network that one life of a node stands on: real sockets, with
// the faults that a lab can make in front of them.
type ground interface {
	transport.Network
	// setLatency adds round-trip time to what is dialed to hostport.
	setLatency(hostport string, rtt time.Duration) error
	// silence swallows what is sent and received, and closes nothing.
	silence(on bool) error
	// block refuses dials to hostport, and cuts what was dialed to it.
	block(hostport string, on bool)
	// kill closes all connections, without a word more.
	kill()
}

// ports keeps the listeners that were opened to learn their addresses, until
// the node listens there itself.
type ports struct {
	dialer net.Dialer

	mu       sync.Mutex
	reserved map[string]net.Listener
}

func newPorts(dialer net.Dialer) *ports {
	return &ports{dialer: dialer, reserved: make(map[string]net.Listener)}
}

// The ports that nodes get. They lie below those that systems choose for the
// near end of a connection: while a node is dead, none of these takes its port.
const (
	lowestPort = 16 << 10
	portCount  = 16 << 10
)

// reserve gives an address of host that nobody else is given.
func (p *ports) reserve(host string) (hostport string, err error) {
	var l net.Listener
	for range 100 {
		port := strconv.Itoa(lowestPort + rand.IntN(portCount))
		if l, err = (transport.OS{}).Listen(net.JoinHostPort(host, port)); err == nil {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	hostport = l.Addr().String()
	p.reserved[hostport] = l
	return hostport, nil
}

// Dial connects over TCP.
func (p *ports) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	return transport.OS{Dialer: &p.dialer}.Dial(ctx, hostport)
}

// Listen gives the listener that was reserved, or a new one.
func (p *ports) Listen(hostport string) (net.Listener, error) {
	p.mu.Lock()
	l := p.reserved[hostport]
	delete(p.reserved, hostport)
	p.mu.Unlock()
	if l != nil {
		return l, nil
	}
	return transport.OS{}.Listen(hostport)
}

// close closes what was reserved and never used.
func (p *ports) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for hostport, l := range p.reserved {
		_ = l.Close()
		delete(p.reserved, hostport)
	}
}

// detour is the network of a router whose dials may go elsewhere.
type detour struct {
	*ports

	router string
	via    func(router, hostport string) string // nil: nowhere else
}

// Dial connects over TCP to where the way leads.
func (d detour) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	if d.via != nil {
		hostport = d.via(d.router, hostport)
	}
	return d.ports.Dial(ctx, hostport)
}

// blocks are the addresses to which a node cannot connect.
type blocks struct {
	mu  sync.Mutex
	set map[string]bool
}

func (b *blocks) put(hostport string, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set == nil {
		b.set = make(map[string]bool)
	}
	b.set[hostport] = on
}

func (b *blocks) check(hostport string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.set[hostport] {
		return fmt.Errorf("dial %s: %w", hostport, syscall.ECONNREFUSED)
	}
	return nil
}

// shaped is the ground of a lab with all faults. Its connections cost copies.
type shaped struct {
	*pipe.Shape
	blocks blocks
}

func newShaped(under transport.Network) *shaped { return &shaped{Shape: pipe.NewShape(under)} }

// Dial connects unless the address is blocked.
func (s *shaped) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	if err := s.blocks.check(hostport); err != nil {
		return nil, err
	}
	return s.Shape.Dial(ctx, hostport)
}

func (s *shaped) setLatency(hostport string, rtt time.Duration) error {
	s.SetLatency(hostport, rtt)
	return nil
}

func (s *shaped) silence(on bool) error {
	s.Silence(on)
	return nil
}

func (s *shaped) block(hostport string, on bool) {
	s.blocks.put(hostport, on)
	if on {
		s.Cut(hostport)
	}
}

func (s *shaped) kill() { s.Close() }

// plain is the ground of a lab that is to be fast: sockets as they are, which
// transport writes without a goroutine, and which can be cut but not delayed.
type plain struct {
	under  transport.Network
	blocks blocks

	mu    sync.Mutex
	dead  bool
	conns map[*net.TCPConn]string // by dialed address; empty: accepted
	sweep int                     // size at which closed ones are forgotten
}

func newPlain(under transport.Network) *plain {
	return &plain{under: under, conns: make(map[*net.TCPConn]string), sweep: 64}
}

// Dial connects unless the address is blocked.
func (p *plain) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	if err := p.blocks.check(hostport); err != nil {
		return nil, err
	}
	c, err := p.under.Dial(ctx, hostport)
	if err != nil {
		return nil, err
	}
	p.keep(c.(*net.TCPConn), hostport)
	return c, nil
}

// Listen listens.
func (p *plain) Listen(hostport string) (net.Listener, error) {
	l, err := p.under.Listen(hostport)
	if err != nil {
		return nil, err
	}
	return plainListener{l, p}, nil
}

type plainListener struct {
	net.Listener
	ground *plain
}

// Accept gives the next connection.
func (l plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.ground.keep(c.(*net.TCPConn), "")
	return c, nil
}

// keep notes a connection so that it can be cut.
func (p *plain) keep(c *net.TCPConn, hostport string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		_ = c.Close()
		return
	}
	if len(p.conns) >= p.sweep {
		for old := range p.conns {
			if old.SetLinger(-1) != nil { // it is closed
				delete(p.conns, old)
			}
		}
		p.sweep = max(64, 2*len(p.conns))
	}
	p.conns[c] = hostport
}

func (p *plain) setLatency(_ string, rtt time.Duration) error {
	if rtt == 0 {
		return nil
	}
	return errPlain
}

func (p *plain) silence(on bool) error {
	if !on {
		return nil
	}
	return errPlain
}

var errPlain = errors.New("this lab runs on plain sockets, which cannot be delayed or silenced")

func (p *plain) block(hostport string, on bool) {
	p.blocks.put(hostport, on)
	if !on {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, to := range p.conns {
		if to == hostport {
			_ = c.Close()
		}
	}
}

func (p *plain) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for c := range p.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	clear(p.conns)
}
