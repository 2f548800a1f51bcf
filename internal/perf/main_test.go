// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs serve on a listener of its own until the test ends.
func run(t *testing.T, serve func(context.Context, net.Listener) error) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return listener.Addr().String()
}

// to dials an address.
func to(address string) Dial {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
}

// chain runs server and relays, with TLS between them, and dials the first relay.
func chain(t *testing.T, hops int) Dial {
	t.Helper()
	ca, err := pki.NewCA("perf", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	configs := func(id string) (in, out *tls.Config) {
		key, err := pki.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := ca.Issue(time.Now(), ginnel.Peer{Role: ginnel.RoleRouter, ID: id}, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.NewCredential(key, leaf, ca.Cert)
		if err != nil {
			t.Fatal(err)
		}
		h := pki.NewHolder(c)
		return pki.ServerConfig(h, time.Now, wire.ALPNLink),
			pki.ClientConfig(h, time.Now, ginnel.Peer{Role: ginnel.RoleRouter}, wire.ALPNLink)
	}
	next := run(t, Server{}.Serve)
	for hop := range hops + 1 { // from the far end
		in, out := configs("relay")
		r := Relay{In: in, Out: out, Next: next}
		if hop == 0 {
			r.Out = nil
		}
		if hop == hops {
			r.In = nil
		}
		next = run(t, r.Serve)
	}
	return to(next)
}

// brief is as long as a load lasts here; nothing depends on it.
const brief = 20 * time.Millisecond
