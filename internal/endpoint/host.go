// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Host is the hosting end of a circuit that is being set up. It must be ended
// by Up or Fail.
type Host struct {
	conn *Conn
}

// NewHost takes up the TLS handshake that the client's first flight, hello,
// began. tls is from pki.CircuitServer.Config with the circuit's ticket. When the
// handshake is not complete 10 s after Up the circuit is over.
func NewHost(cfg Config, config *tls.Config, hello []byte, local, remote net.Addr) *Host {
	s := newStream(flow.Host, cfg, hello[:min(len(hello), wire.MaxEarlyOut)])
	if len(hello) > wire.MaxEarlyOut {
		s.fail(fmt.Errorf("first flight of the client is longer than %d bytes", wire.MaxEarlyOut))
	}
	h := &Host{conn: newConn(s, local, remote)}
	go func() {
		Deepen()
		s.handshakeEnds(h.conn.shake(config))
	}()
	return h
}

// Flight gives the host's first bytes, which ride in the answer to the dial.
// What is more goes with the stream. An error means that the client's flight was bad.
func (h *Host) Flight() ([]byte, error) {
	flight := h.conn.stream.takeFlight(wire.MaxEarlyBack)
	if err := h.conn.stream.Err(); err != nil {
		return nil, err
	}
	return flight, nil
}

// Up gives the circuit its path; it is called before the answer to the dial goes
// out, for a frame that comes earlier is lost. The Conn may be read and written
// at once; both wait until the client has shown who it is.
func (h *Host) Up(generation uint32, hop Hop) (*Conn, error) {
	if err := h.conn.stream.up(generation, hop, nil); err != nil {
		h.Fail(err)
		return nil, err
	}
	return h.conn, nil
}

// Fail ends a circuit that did not come about. After Up it does nothing.
func (h *Host) Fail(err error) { h.conn.stream.fail(err) }

// Stream gives the stream, for those who tell it of its paths.
func (h *Host) Stream() *Stream { return h.conn.stream }
