// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// mode is the first byte of a connection: what its client wants of the server,
// which answers with the same byte. Then:
//
//	sink    the server reads to the end of the client's stream; about ten times a
//	        second, and at the end, it says how much came: 8 bytes, big-endian
//	source  at the client's next byte the server begins to write, until the client
//	        is gone
//	echo    the server sends back what comes
//	touch   nothing more: the answer was the point, and the client ends the connection
type mode byte

const (
	sink   mode = 'i'
	source mode = 'o'
	echo   mode = 'e'
	touch  mode = 't'
)

const (
	// chunk is how much is read or written at a time.
	chunk = 64 << 10
	// openTimeout bounds the making of a connection, its answer included.
	openTimeout = 30 * time.Second
	// stall is how long a measurement waits for bytes that do not come.
	stall = 10 * time.Second
)

// Dial makes one connection to a Server.
type Dial func(ctx context.Context) (net.Conn, error)

// open makes a connection of a mode and waits for the server's answer.
func open(ctx context.Context, dial Dial, m mode) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer interruptible(ctx, conn)()
	if err := greet(conn, m); err != nil {
		abandon(conn)
		return nil, errors.Join(ctx.Err(), err)
	}
	return conn, nil
}

func greet(conn net.Conn, m mode) error {
	if _, err := conn.Write([]byte{byte(m)}); err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("first byte of the server: %w", err)
	}
	if mode(answer[0]) != m {
		return fmt.Errorf("the server answered %q to %q: it is none of ours", answer[0], byte(m))
	}
	return nil
}

// interruptible abandons conn at the end of ctx. The function that it gives ends
// that; it must be called.
func interruptible(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { abandon(conn) })
}

// abandon ends a connection without caring for what is under way.
func abandon(conn net.Conn) {
	if c, ok := conn.(interface{ Abort() error }); ok {
		_ = c.Abort()
	}
	_ = conn.Close()
}

// closeWrite ends this end's stream.
func closeWrite(conn net.Conn) error {
	c, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("a %T cannot end one direction alone", conn)
	}
	return c.CloseWrite()
}
