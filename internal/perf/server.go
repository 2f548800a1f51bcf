// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds of a Server, which answers anyone who reaches it.
const (
	maxServed = 1024             // connections at a time, if it is not told otherwise
	maxLife   = 10 * time.Minute // of a connection
	firstByte = 10 * time.Second // until a client has said what it wants
)

// reportEvery is how often a sink says how much has come.
const reportEvery = 100 * time.Millisecond

// Server answers the clients of this package.
type Server struct {
	// Most is how many connections it serves at a time; one more is closed at once.
	// 0: 1024.
	Most int
}

// Serve answers on listener until ctx ends, then closes it and all connections and
// gives nil. Any other end is an error.
func (s Server) Serve(ctx context.Context, listener net.Listener) error {
	return accept(ctx, listener, cmp.Or(s.Most, maxServed), func(ctx context.Context, conn net.Conn) {
		defer interruptible(ctx, conn)()
		// A client that goes away in the middle is the usual end.
		_ = serve(conn)
		_ = conn.Close()
	})
}

// accept serves a bounded number of connections at a time, each in a goroutine
// that owns it, until ctx ends.
func accept(ctx context.Context, listener net.Listener, most int, serve func(context.Context, net.Conn)) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	slots := make(chan struct{}, most)
	for {
		conn, err := listener.Accept()
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		case err != nil:
			// Mostly: out of file descriptors. Connections that end free some.
			if !pause(ctx, 50*time.Millisecond) {
				return nil
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			abandon(conn)
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			serve(ctx, conn)
		})
	}
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func serve(conn net.Conn) error {
	begun := time.Now()
	if err := conn.SetReadDeadline(begun.Add(firstByte)); err != nil {
		return err
	}
	var asked [1]byte
	if _, err := io.ReadFull(conn, asked[:]); err != nil {
		return err
	}
	m := mode(asked[0])
	work, known := map[mode]func(net.Conn) error{sink: serveSink, source: serveSource, echo: serveEcho, touch: serveTouch}[m]
	if !known {
		return fmt.Errorf("a client asked for %q", asked[0])
	}
	if err := conn.SetDeadline(begun.Add(maxLife)); err != nil {
		return err
	}
	if _, err := conn.Write(asked[:]); err != nil {
		return err
	}
	return work(conn)
}

func serveSink(conn net.Conn) error {
	buf := make([]byte, chunk)
	var total uint64
	last := time.Now()
	for {
		n, err := conn.Read(buf)
		total += uint64(n)
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return err
		}
		if now := time.Now(); ended || now.Sub(last) >= reportEvery {
			last = now
			if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, total)); err != nil || ended {
				return err
			}
		}
	}
}

func serveSource(conn net.Conn) error {
	buf := make([]byte, chunk)
	if _, err := io.ReadFull(conn, buf[:1]); err != nil {
		return err
	}
	for {
		if _, err := conn.Write(buf); err != nil {
			return err
		}
	}
}

func serveEcho(conn net.Conn) error {
	buf := make([]byte, chunk)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, err := conn.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// serveTouch leaves the first close to the client, so that it is the client's
// socket that lingers in TIME_WAIT, as with the other modes.
func serveTouch(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(firstByte)); err != nil {
		return err
	}
	var none [1]byte
	_, err := conn.Read(none[:])
	return err
}
