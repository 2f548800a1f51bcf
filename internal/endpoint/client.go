// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
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
		conn:      newConn(s, local, remote),
		handshake: make(chan error, 1),
	}
	go func() {
		Deepen()
		err := c.conn.shake(config)
		if errors.Is(err, errLongHello) && s.rewind() { // a session of a host with a long ticket
			err = c.conn.shake(withoutSession(config))
		}
		c.handshake <- err
		s.handshakeEnds(err)
	}()
	return c
}

// withoutSession gives config for a full handshake.
func withoutSession(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.ClientSessionCache = nil
	return config
}

// Hello gives the ClientHello, which rides in the Dial. It is called once; after
// an error the client is over.
func (c *Client) Hello() ([]byte, error) {
	hello := c.conn.stream.takeFlight(wire.MaxEarlyOut)
	if len(hello) == 0 {
		return nil, fmt.Errorf("first flight of TLS: %w", <-c.handshake)
	}
	return hello, nil
}

// Up gives the circuit its path and the host's first bytes, and finishes the
// handshake, in 10 s at most. On an error the circuit is over.
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
		<-c.conn.stream.handshake
		return nil, context.Cause(ctx)
	}
}

// Stream gives the stream, for those who tell it of its paths.
func (c *Client) Stream() *Stream { return c.conn.stream }

// Fail ends a circuit that did not come about. After Up it does nothing.
func (c *Client) Fail(err error) { c.conn.stream.fail(err) }
