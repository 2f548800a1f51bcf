// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/record"
)

// tap is the connection under crypto/tls, which does the handshake and takes the
// session tickets behind it. It lets TLS read record by record, so that what is
// behind the handshake stays in the stream, for the Conn's own records.
type tap struct {
	*Stream
	bound record.Bound
	wrote []byte // of a host: all that TLS has written
	over  bool   // the handshake is: TLS reads fed and writes nothing
	fed   []byte
}

// Read gives TLS what has come.
func (t *tap) Read(p []byte) (int, error) {
	if t.over {
		n := copy(p, t.fed)
		if t.fed = t.fed[n:]; n == 0 {
			return 0, nothingYet{}
		}
		return n, nil
	}
	n, err := t.Stream.Read(p[:min(len(p), t.bound.Most())])
	t.bound.Passed(p[:n])
	return n, err
}

// Write takes what TLS says.
func (t *tap) Write(p []byte) (int, error) {
	if t.over {
		return 0, net.ErrClosed
	}
	if t.role == flow.Host {
		t.wrote = append(t.wrote, p...)
	}
	return t.Stream.Write(p)
}

// nothingYet is what a Read gives that must not wait. TLS goes on after it.
type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing has come yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// handshake runs TLS until both ends have shown who they are, and then takes its
// keys: from there on the Conn makes and opens the records.
func (c *Conn) handshake(config *tls.Config) error {
	secrets := new(record.Secrets)
	config = config.Clone()
	config.KeyLogWriter = secrets // into memory, for this end only
	under := &tap{Stream: c.stream}
	client := c.stream.role == flow.Client
	over := tls.Server
	if client {
		over = tls.Client
	}
	t := over(under, config)
	if err := t.HandshakeContext(context.Background()); err != nil { // the stream's end ends it
		return err
	}
	state := t.ConnectionState()
	in, out, err := secrets.Halves(state.CipherSuite, client)
	if err == nil {
		err = out.Behind(under.wrote)
	}
	if err != nil {
		return err
	}
	under.over, under.wrote = true, nil
	var ticket func([]byte)
	if client && config.ClientSessionCache != nil {
		ticket = func(rec []byte) {
			under.fed = rec
			_, _ = t.Read(make([]byte, 1)) // it ends with nothingYet; a bad ticket is no ticket
		}
	}
	c.in, c.out, c.resumed = record.NewReader(in, ticket), out, state.DidResume
	return nil
}
