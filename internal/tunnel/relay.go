// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// A direction begins with a small buffer, since most connections are idle
// most of the time, and gets a larger one when a read fills it. In bytes.
const (
	firstBuffer = 4 << 10
	maxBuffer   = 64 << 10
)

// relay copies both ways between program and fabric until both have ended,
// one is reset, or ctx ends. The end of one direction is passed on as such,
// and the other goes on; a reset is passed on as a reset. Both are closed
// when relay returns.
func relay(ctx context.Context, program, fabric net.Conn) {
	abortBoth := sync.OnceFunc(func() {
		abort(program)
		abort(fabric)
	})
	stop := context.AfterFunc(ctx, abortBoth)
	defer stop()
	var directions sync.WaitGroup
	for _, d := range []struct{ to, from net.Conn }{{fabric, program}, {program, fabric}} {
		directions.Go(func() {
			if err := copyUntilEnd(d.to, d.from); err != nil {
				abortBoth()
				return
			}
			if err := closeWrite(d.to); err != nil {
				abortBoth()
			}
		})
	}
	directions.Wait()
	_ = program.Close() // both directions have ended: nothing is left to say
	_ = fabric.Close()
}

// copyUntilEnd copies until from ends; its end is no error.
func copyUntilEnd(to io.Writer, from io.Reader) error {
	buffer := make([]byte, firstBuffer)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if _, err := to.Write(buffer[:count]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if count == len(buffer) && count < maxBuffer {
			buffer = make([]byte, 4*len(buffer))
		}
	}
}

// closeWrite ends the direction to conn. A connection that cannot end one
// direction alone is closed: its peer would wait for the end forever.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// abort closes conn so that its peer sees a reset where the connection can
// tell that from an end.
func abort(conn net.Conn) {
	switch c := conn.(type) {
	case interface{ Abort() error }: // of the fabric
		_ = c.Abort()
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // close then sends RST
	}
	_ = conn.Close()
}
