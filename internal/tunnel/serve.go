// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/ginnel/ginnel/internal/splice"
)

// server serves the connections of all front ends.
type server struct {
	connector *connector
	flows     *flows
	handshake time.Duration // in which a proxy's client has said where to
	silent    *silent
	log       *slog.Logger
}

// toTarget serves connections that all go to one host and port. The program
// has been accepted, so it learns of a failure by a reset.
func (s *server) toTarget(host string, port uint16) func(context.Context, net.Conn) {
	return func(ctx context.Context, conn net.Conn) { s.join(ctx, conn, host, port) }
}

// toOriginal serves an intercepted connection: where it wanted to go is its
// local address.
func (s *server) toOriginal(ctx context.Context, conn net.Conn) {
	original, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		splice.Abort(conn)
		return
	}
	at := original.AddrPort()
	s.join(ctx, conn, at.Addr().Unmap().String(), at.Port())
}

func (s *server) join(ctx context.Context, conn net.Conn, host string, port uint16) {
	fabric, leave, err := s.connector.connect(ctx, host, port, conn.RemoteAddr())
	defer leave()
	if err != nil {
		splice.Abort(conn)
		s.failed(ctx, err, "host", host, "port", port)
		return
	}
	relay(ctx, conn, fabric)
}

// failed logs a dial that failed. Of a service that is hammered and dead only the dials
// that were made are told, or whoever hammers fills the log.
func (s *server) failed(ctx context.Context, err error, attrs ...any) {
	level := slog.LevelInfo
	if errors.Is(err, errAgain) {
		level = slog.LevelDebug
	}
	s.log.Log(ctx, level, "dial failed", append(attrs, "err", err)...)
}

// proxy serves a client that speaks SOCKS5 or HTTP CONNECT; the first byte tells.
func (s *server) proxy(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { splice.Abort(conn) })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(s.handshake)); err != nil {
		splice.Abort(conn)
		return
	}
	spoken := s.silent.enter(conn)
	defer spoken()
	var first [1]byte
	_, err := io.ReadFull(conn, first[:])
	switch {
	case err != nil:
	case first[0] == socksVersion:
		err = s.socks(ctx, conn, spoken)
	case first[0] >= 'A' && first[0] <= 'Z':
		err = s.httpConnect(ctx, conn, first[0], spoken)
	default:
		err = fmt.Errorf("first byte %#02x is neither SOCKS5 nor HTTP", first[0])
	}
	if err != nil {
		// Nothing, half a request, or another protocol: nobody is there to be told.
		splice.Abort(conn)
		s.log.Debug("proxy client dropped", "err", err)
	}
}

// socks serves a client after its version byte. It owns conn once it returns nil, and
// calls spoken when it has the request.
func (s *server) socks(ctx context.Context, conn net.Conn, spoken func()) error {
	noAuth, err := readSOCKSMethods(conn)
	if err != nil {
		return err
	}
	if !noAuth {
		_, err := conn.Write([]byte{socksVersion, socksNoMethod})
		finish(conn)
		return err
	}
	if _, err := conn.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return err
	}
	request, err := readSOCKSRequest(conn)
	spoken()
	var refusal *socksError
	if err != nil && !errors.As(err, &refusal) {
		return err
	}
	if err == nil && request.command == socksAssociate {
		s.associate(ctx, conn)
		return nil
	}
	var fabric net.Conn
	if err == nil {
		var leave func()
		fabric, leave, err = s.connector.connect(ctx, request.host, request.port, conn.RemoteAddr())
		defer leave()
	}
	s.answer(ctx, conn, fabric, appendSOCKSReply(nil, socksReplyFor(err)), nil, err)
	return nil
}

// httpConnect serves a client whose first byte was read. It owns conn once it returns
// nil, and calls spoken when it has the request.
func (s *server) httpConnect(ctx context.Context, conn net.Conn, first byte, spoken func()) error {
	host, port, rest, err := readConnect(conn, first)
	spoken()
	refused := errors.Is(err, errMethod) || errors.Is(err, errRequest)
	if err != nil && !refused {
		return err
	}
	var fabric net.Conn
	if err == nil {
		var leave func()
		fabric, leave, err = s.connector.connect(ctx, host, port, conn.RemoteAddr())
		defer leave()
	}
	s.answer(ctx, conn, fabric, []byte(connectReply(err)), rest, err)
	return nil
}

// answer tells the client how its dial ended and, if well, carries its bytes, of which
// early came with its request. What carries them gets the connections as they are: it
// knows a short way between such.
func (s *server) answer(ctx context.Context, conn, fabric net.Conn, reply, early []byte, dialed error) {
	// The dial took its time; the reply gets a deadline of its own.
	deadline := time.Now().Add(s.handshake)
	_ = conn.SetDeadline(deadline)
	_, err := conn.Write(reply)
	if dialed != nil {
		s.failed(ctx, dialed)
		finish(conn)
		return
	}
	if err == nil && len(early) > 0 {
		_ = fabric.SetDeadline(deadline)
		if _, err = fabric.Write(early); err == nil {
			err = fabric.SetDeadline(time.Time{})
		}
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		splice.Abort(fabric)
		splice.Abort(conn)
		return
	}
	relay(ctx, conn, fabric)
}

// finish closes conn so that a client that is still sending reads the reply
// and not a reset: it reads what comes until the deadline or a bound.
func finish(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, conn, 64<<10)
	}
	_ = conn.Close()
}
