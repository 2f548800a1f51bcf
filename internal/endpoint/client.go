// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Client is the dialing end of a circuit that is being set up. It must be ended
// by Up or Fail.
type Client struct {
	conn      *Conn
	handshake chan error // takes one
}

// NewClient begins the TLS handshake of a circuit that does not exist yet. tls
// is from pki.CircuitClientConfig; remote names what is dialed.
func NewClient(cfg Config, config *tls.Config, local, remote net.Addr) *Client {
	s := newStream(flow.Client, cfg, nil)
	c := &Client{
		conn:      &Conn{tls: tls.Client(s, full(config)), stream: s, local: local, remote: remote},
		handshake: make(chan error, 1),
	}
	go func() {
		c.handshake <- c.conn.shake()
		s.flightEnds()
	}()
	return c
}

// full gives config with records that fill a frame from the start.
func full(config *tls.Config) *tls.Config {
	if config.DynamicRecordSizingDisabled {
		return config
	}
	config = config.Clone()
	config.DynamicRecordSizingDisabled = true
	return config
}

// Hello gives the ClientHello, which rides in the Dial.
func (c *Client) Hello() ([]byte, error) {
	hello := c.conn.stream.takeFlight(wire.MaxEarlyOut + 1)
	if len(hello) > wire.MaxEarlyOut {
		return nil, fmt.Errorf("first flight of TLS is longer than %d bytes", wire.MaxEarlyOut)
	}
	if len(hello) == 0 {
		return nil, fmt.Errorf("first flight of TLS: %w", <-c.handshake)
	}
	return hello, nil
}

// Up gives the circuit its path and the host's first bytes, and finishes the
// handshake. On an error the circuit is over.
func (c *Client) Up(ctx context.Context, generation uint32, hop Hop, early []byte) (*Conn, error) {
	s := c.conn.stream
	if err := s.up(generation, hop, early); err != nil {
		c.Fail(err)
		return nil, err
	}
	select {
	case err := <-c.handshake:
		if err == nil {
			return c.conn, nil
		}
		c.conn.Abort(ginnel.NotAuthenticated, "handshake failed")
		return nil, err
	case <-ctx.Done():
		c.conn.Abort(ginnel.Cancelled, "client gave up")
		<-c.handshake
		return nil, context.Cause(ctx)
	}
}

// Stream gives the stream, for those who tell it of its paths.
func (c *Client) Stream() *Stream { return c.conn.stream }

// Fail ends a circuit that did not come about. After Up it does nothing.
func (c *Client) Fail(err error) { c.conn.stream.fail(err) }
