// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// shapedBuffer is how many bytes a shaped direction holds: what a fast path
	// has on the way in 50 ms, and not more.
	shapedBuffer = 8 << 20
	// piece is what a pump moves at once.
	piece = 64 << 10
)

// Under is a network that Shape can stand on.
type Under interface {
	Dial(ctx context.Context, hostport string) (net.Conn, error)
	Listen(hostport string) (net.Listener, error)
}

// Shape is a network on top of another, for one process: it adds latency to
// what it dials, and goes silent by command. Its connections are no sockets:
// they cost two copies and two goroutines each.
type Shape struct {
	under Under

	mu      sync.Mutex
	silent  bool
	latency map[string]time.Duration // one way, by dialed address
	quiet   map[string]bool          // dialed addresses that are silent
	conns   map[*shaped]struct{}
	changed chan struct{} // closed when silence changes
	closed  bool
	pumps   sync.WaitGroup
}

// shaped is a connection of under and the two directions in front of it.
type shaped struct {
	hostport string // as dialed; empty: accepted
	in, out  *half
	under    net.Conn
}

// NewShape gives a network that adds nothing yet.
func NewShape(under Under) *Shape {
	return &Shape{
		under:   under,
		latency: make(map[string]time.Duration),
		quiet:   make(map[string]bool),
		conns:   make(map[*shaped]struct{}),
		changed: make(chan struct{}),
	}
}

// SetLatency adds a round-trip time, half of it each way, to connections dialed
// to hostport, old and new.
func (s *Shape) SetLatency(hostport string, rtt time.Duration) {
	s.change(func() { s.latency[hostport] = rtt / 2 })
}

// Silence makes all connections silent both ways, or ends that.
func (s *Shape) Silence(on bool) { s.change(func() { s.silent = on }) }

// SilencePeer makes connections dialed to hostport silent both ways, or ends that.
func (s *Shape) SilencePeer(hostport string, on bool) {
	s.change(func() { s.quiet[hostport] = on })
}

// Cut closes the connections dialed to hostport; empty: all.
func (s *Shape) Cut(hostport string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if hostport == "" || c.hostport == hostport {
			c.cut()
		}
	}
}

// Close closes all connections and waits for their goroutines. What is dialed
// or accepted later is closed at once.
func (s *Shape) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	s.pumps.Wait()
}

func (c *shaped) cut() {
	c.in.cut()
	c.out.cut()
	_ = c.under.Close()
}

func (s *Shape) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	for c := range s.conns {
		for _, h := range []*half{c.in, c.out} {
			h.setLatency(s.latency[c.hostport])
			h.setSilent(s.silentLocked(c.hostport))
		}
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Shape) silentLocked(hostport string) bool { return s.silent || s.quiet[hostport] }

// Dial connects through the network below, and waits while it is silent.
func (s *Shape) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	for {
		s.mu.Lock()
		silent, rtt, changed := s.silentLocked(hostport), 2*s.latency[hostport], s.changed
		s.mu.Unlock()
		if !silent {
			if err := sleep(ctx, rtt); err != nil {
				return nil, err
			}
			c, err := s.under.Dial(ctx, hostport)
			if err != nil {
				return nil, err
			}
			return s.wrap(c, hostport), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "shape", Addr: addr(hostport), Err: ctx.Err()}
		}
	}
}

// Listen listens on the network below.
func (s *Shape) Listen(hostport string) (net.Listener, error) {
	l, err := s.under.Listen(hostport)
	if err != nil {
		return nil, err
	}
	return shapedListener{l, s}, nil
}

type shapedListener struct {
	net.Listener
	shape *Shape
}

// Accept gives the next connection. One that comes during a silence is given,
// and nothing comes over it.
func (l shapedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.shape.wrap(c, ""), nil
}

// wrap puts two halves in front of c.
func (s *Shape) wrap(c net.Conn, hostport string) net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	latency, silent := s.latency[hostport], s.silentLocked(hostport)
	k := &shaped{
		hostport: hostport,
		out:      newHalf(shapedBuffer, latency, silent),
		in:       newHalf(shapedBuffer, latency, silent),
		under:    c,
	}
	near, far := join(k.out, k.in, c.LocalAddr(), c.RemoteAddr())
	if s.closed {
		k.cut()
		return near
	}
	s.conns[k] = struct{}{}
	up := make(chan struct{}) // closed when nothing more comes from below
	s.pumps.Go(func() {
		defer close(up)
		if err := pump(far, c); err != nil {
			k.in.cut() // a reset from below is one above
			return
		}
		far.out.end()
	})
	s.pumps.Go(func() {
		// All that was written goes down, and its end with it; what comes from
		// below still comes, unless nobody reads it any more.
		if err := pump(c, far); err == nil && closeWrite(c) == nil {
			k.in.left(up)
		}
		_ = c.Close()
		far.in.leave()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, k)
	})
	return near
}

// closeWrite ends the direction to c, where c can.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// pump moves bytes until from ends, which is no error, or either side fails.
func pump(to, from net.Conn) error {
	buf := make([]byte, piece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
