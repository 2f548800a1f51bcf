// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package splice joins a connection of the operating system to one of the
// fabric: it carries bytes both ways, passes ends on as ends and resets as
// resets, and says in the words of the fabric why a server could not be reached.
// It does not make connections and keeps nothing.
//
// Its functions may be called from any goroutine.
package splice

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/ginnel/ginnel/internal/socket"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// idleSize is the buffer of a direction that carries little, in bytes.
	idleSize = 4 << 10
	// bulkSize is that of one in full flow: two records of a circuit's TLS.
	bulkSize = 2 * wire.MaxRecord
)

var (
	idle = sync.Pool{New: func() any { return new([idleSize]byte) }}
	bulk = sync.Pool{New: func() any { return new([bulkSize]byte) }}
)

// Join carries bytes between two connections, both ways, until both directions
// have ended, and then closes both. The end of one direction is passed on as
// such and the other goes on. The first failure is given to failed, once; it
// must make both connections fail, or Join does not return.
func Join(a, b net.Conn, failed func(error)) {
	var first sync.Once
	var directions sync.WaitGroup
	carry := func(to, from net.Conn) {
		if err := Copy(to, from); err != nil {
			first.Do(func() { failed(err) })
		}
	}
	directions.Go(func() { carry(a, b) })
	carry(b, a)
	directions.Wait()
	_ = a.Close() // both directions have ended: nothing is left to say
	_ = b.Close()
}

// Copy carries bytes until from ends, and then ends the stream of to. The end
// of from is no error. It holds a large buffer only while much comes.
func Copy(to io.Writer, from io.Reader) error {
	if carried, err := byItself(to, from); carried {
		if err != nil {
			return err
		}
		return CloseWrite(to)
	}
	lent := idle.Get().(*[idleSize]byte)
	defer idle.Put(lent)
	small := lent[:]
	buf := small
	var large *[bulkSize]byte
	defer func() {
		if large != nil {
			bulk.Put(large)
		}
	}()
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return CloseWrite(to)
		case err != nil:
			return err
		case n == len(small) && large == nil:
			large = bulk.Get().(*[bulkSize]byte)
			buf = large[:]
		case n < len(small)/2 && large != nil:
			bulk.Put(large)
			large, buf = nil, small
		}
	}
}

// byItself lets a connection of the fabric carry the bytes of a TCP connection,
// if there is one of each: it knows ways without copies. What the standard library
// would do between others is no gain, and copies.
func byItself(to io.Writer, from io.Reader) (carried bool, err error) {
	switch {
	case isTCP(to) == isTCP(from):
	case isTCP(to):
		if fabric, ok := from.(io.WriterTo); ok {
			_, err = fabric.WriteTo(to)
			return true, err
		}
	default:
		if fabric, ok := to.(io.ReaderFrom); ok {
			_, err = fabric.ReadFrom(from)
			return true, err
		}
	}
	return false, nil
}

func isTCP(c any) bool {
	_, ok := c.(*net.TCPConn)
	return ok
}

// CloseWrite ends the stream to w. A connection that cannot end one direction
// alone is closed, since its peer would wait for the end forever; a writer that
// is no connection has no end.
func CloseWrite(w io.Writer) error {
	switch c := w.(type) {
	case *net.TCPConn:
		return socket.CloseWrite(c)
	case interface{ CloseWrite() error }:
		return c.CloseWrite()
	case net.Conn:
		return c.Close()
	}
	return nil
}

// Abort closes conn so that its peer sees a reset, where the connection can
// tell that from an end.
func Abort(conn net.Conn) {
	switch c := conn.(type) {
	case interface{ Abort() error }: // of the fabric
		_ = c.Abort()
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // close then sends RST
	}
	_ = conn.Close()
}
