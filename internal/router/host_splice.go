// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// idleRead is the buffer of a direction that carries little.
	idleRead = 4 << 10
	// bulkRead is that of one in full flow: two records of the circuit's TLS.
	bulkRead = 2 * wire.MaxRecord
)

var bulkBuffers = sync.Pool{New: func() any { return new([bulkRead]byte) }}

// splice carries bytes between a connection and a circuit, both ways, each with
// an end of its own. It returns when both have ended; what fails in one way ends
// the other, and both sides see a reset.
func splice(conn net.Conn, circuit *endpoint.Conn) {
	var both sync.WaitGroup
	fail := func(err error) {
		circuit.Abort(ginnel.PeerReset, "the server's connection: "+err.Error())
		abort(conn)
	}
	both.Go(func() {
		if err := carry(circuit, conn); err != nil {
			fail(err)
		}
	})
	if err := carry(conn, circuit); err != nil {
		fail(err)
	}
	both.Wait()
	_ = circuit.Close() // what was written still arrives
	_ = conn.Close()
}

// carry copies from src to dst until src ends, and then ends dst's stream. It
// holds a large buffer only while much comes.
func carry(dst io.Writer, src io.Reader) error {
	small := make([]byte, idleRead)
	buf := small
	var large *[bulkRead]byte
	defer func() {
		if large != nil {
			bulkBuffers.Put(large)
		}
	}()
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return closeWrite(dst)
		case err != nil:
			return err
		case n == len(small) && large == nil:
			large = bulkBuffers.Get().(*[bulkRead]byte)
			buf = large[:]
		case n < len(small)/2 && large != nil:
			bulkBuffers.Put(large)
			large, buf = nil, small
		}
	}
}

// closeWrite ends the stream to dst.
func closeWrite(dst io.Writer) error {
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
