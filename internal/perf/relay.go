// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Relay is one process of the yardstick: a plain relay that hands the bytes of
// each connection to the next one, in both directions, with a buffer of 64 KiB
// for each. A chain of three, with TLS between them, is what the path through
// tunneler, edge router and egress router would be without being a network.
type Relay struct {
	// In is for TLS with the one before, which must have a certificate if the
	// config says so; nil: plain TCP.
	In *tls.Config
	// Out is for TLS with the next one, nil: plain TCP.
	Out *tls.Config
	// Next is HOST:PORT of the next relay or server.
	Next string
}

// Serve relays the connections of listener until ctx ends, then closes it and
// all connections and gives nil. Any other end is an error.
func (r Relay) Serve(ctx context.Context, listener net.Listener) error {
	return accept(ctx, listener, maxServed, func(ctx context.Context, conn net.Conn) {
		defer interruptible(ctx, conn)()
		// The two ends of the connection hear of a failure as its end.
		_ = r.relay(ctx, conn)
		_ = conn.Close()
	})
}

func (r Relay) relay(ctx context.Context, from net.Conn) error {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if r.In != nil {
		secured := tls.Server(from, r.In)
		if err := secured.HandshakeContext(opening); err != nil {
			return err
		}
		from = secured
	}
	to, err := r.next(opening)
	if err != nil {
		return err
	}
	defer to.Close()
	defer interruptible(ctx, to)()
	var back error
	var copying sync.WaitGroup
	copying.Go(func() { back = pipe(from, to) })
	forth := pipe(to, from)
	copying.Wait()
	return errors.Join(forth, back)
}

func (r Relay) next(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Next)
	if err != nil || r.Out == nil {
		return conn, err
	}
	secured := tls.Client(conn, r.Out)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// pipe copies to the end of the stream and ends that of the other side. When
// that fails, the connection is over in both directions. It does not use
// io.Copy, which would take smaller buffers, or the kernel's help, as it likes.
func pipe(to, from net.Conn) error {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return hangUp(to, from, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := closeWrite(to); err != nil {
				return hangUp(to, from, err)
			}
			return nil
		case err != nil:
			return hangUp(to, from, err)
		}
	}
}

// hangUp makes both directions end at once, which wakes the other pipe.
func hangUp(a, b net.Conn, err error) error {
	past := time.Unix(1, 0)
	_ = a.SetDeadline(past)
	_ = b.SetDeadline(past)
	return err
}
