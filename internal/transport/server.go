// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// handshakeTimeout bounds the TLS handshake of a stranger.
const handshakeTimeout = 5 * time.Second

// Protocol says what becomes of connections of one ALPN name. Exactly one of
// the functions is set. Each is called in a goroutine of its own, which is the
// connection's for as long as it likes; ctx ends with the Server.
type Protocol struct {
	// Frames takes an authenticated connection; the connection is closed when
	// it returns.
	Frames func(ctx context.Context, c *Conn)
	// Stream takes a TLS connection whose peer need not have shown a
	// certificate (enrollment). How many run at once is limited; the
	// connection is closed when it returns.
	Stream func(ctx context.Context, c *tls.Conn)
	// Hand takes a TLS connection and owns it from then on (an HTTP server).
	Hand func(c *tls.Conn)
}

// Server accepts connections on one port and gives each to its protocol.
type Server struct {
	cfg        *tls.Config
	identify   Identify
	protocols  map[string]Protocol
	log        *slog.Logger
	handshakes *gate
	anonymous  *gate

	mu    sync.Mutex
	conns map[net.Conn]struct{} // not handed over; closed when Serve ends
	ended bool
}

// ServerConfig is what a Server needs.
type ServerConfig struct {
	// TLS verifies peers, and chooses among NextProtos; those without a
	// Protocol are refused.
	TLS *tls.Config
	// Identify names the peer of a connection with frames.
	Identify Identify
	// Protocols by ALPN name.
	Protocols map[string]Protocol
	Limits    Limits
	Log       *slog.Logger
}

// NewServer gives a server that is not serving yet.
func NewServer(cfg ServerConfig) *Server {
	limits := cfg.Limits.withDefaults()
	return &Server{
		cfg:        cfg.TLS,
		identify:   cfg.Identify,
		protocols:  cfg.Protocols,
		log:        cfg.Log,
		handshakes: newGate(limits.Handshakes, limits.PerSource),
		anonymous:  newGate(limits.Anonymous, limits.PerSource),
		conns:      make(map[net.Conn]struct{}),
	}
}

// Serve accepts from l until ctx ends, then closes l and all connections that
// were not handed over, and returns when their goroutines have. A listener that
// fails for another reason ends it with that error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer s.closeAll()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		nc, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if !temporary(err) {
				_ = l.Close()
				return err
			}
			s.log.Warn("accept paused", "err", err)
			if !pause(ctx, 50*time.Millisecond) {
				return nil
			}
			continue
		}
		source := sourceOf(nc.RemoteAddr())
		// Closed at once, before anything is allocated for it.
		if !s.handshakes.enter(source) {
			abort(nc)
			continue
		}
		running.Go(func() { s.take(ctx, nc, source) })
	}
}

// take does one connection's handshake and gives it to its protocol.
func (s *Server) take(ctx context.Context, nc net.Conn, source string) {
	if !s.track(nc) {
		s.handshakes.leave(source)
		return
	}
	defer s.forget(nc)
	t := secured(nc, s.cfg, false)
	limited, cancel := context.WithTimeout(ctx, handshakeTimeout)
	err := t.HandshakeContext(limited)
	cancel()
	s.handshakes.leave(source)
	if err != nil {
		_ = nc.Close()
		s.log.Debug("handshake refused", "remote", source, "err", err)
		return
	}
	alpn := t.ConnectionState().NegotiatedProtocol
	p := s.protocols[alpn]
	switch {
	case p.Frames != nil:
		s.frames(ctx, t, p, source)
	case p.Stream != nil:
		if s.anonymous.enter(source) {
			defer s.anonymous.leave(source)
			p.Stream(ctx, t)
		}
		_ = nc.Close()
	case p.Hand != nil:
		s.forget(nc)
		p.Hand(t)
	default:
		_ = nc.Close()
		s.log.Debug("protocol refused", "remote", source, "alpn", alpn)
	}
}

func (s *Server) frames(ctx context.Context, t *tls.Conn, p Protocol, source string) {
	c, err := Framed(t, s.identify)
	if err != nil {
		s.log.Debug("peer refused", "remote", source, "err", err)
		return
	}
	defer c.Close(nil)
	p.Frames(ctx, c)
}

func (s *Server) track(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = nc.Close()
		return false
	}
	s.conns[nc] = struct{}{}
	return true
}

func (s *Server) forget(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for nc := range s.conns {
		_ = nc.Close()
	}
}

// abort closes a connection without keeping its port in TIME_WAIT.
func abort(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = nc.Close()
}

// temporary reports whether accepting goes on after err: out of files or of
// memory, or a connection that went away before it was accepted.
func temporary(err error) bool {
	return !errors.Is(err, net.ErrClosed)
}

// pause waits for d; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
