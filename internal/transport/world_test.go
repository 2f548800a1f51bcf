// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ Network = OS{}
	_ Network = (*pipe.Network)(nil)
	_ Network = (*pipe.Host)(nil)
	_ Network = (*pipe.Shape)(nil)
)

func controller(id string) ginnel.Peer { return ginnel.Peer{Role: ginnel.RoleController, ID: id} }
func router(id string) ginnel.Peer     { return ginnel.Peer{Role: ginnel.RoleRouter, ID: id} }
func identity(id string) ginnel.Peer   { return ginnel.Peer{Role: ginnel.RoleIdentity, ID: id} }

// authority issues credentials of one network.
type authority struct{ ca *pki.CA }

func newAuthority(t testing.TB) authority {
	t.Helper()
	ca, err := pki.NewCA("test.example", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return authority{ca}
}

func (a authority) issue(t testing.TB, peer ginnel.Peer) *pki.Credential {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.ca.Issue(time.Now(), peer, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, a.ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (a authority) holder(t testing.TB, peer ginnel.Peer) *pki.Holder {
	t.Helper()
	return pki.NewHolder(a.issue(t, peer))
}

// plainPair joins two Conns over a connection in memory, without TLS: what is
// tested is not its business, and thousands of handshakes take long.
func plainPair(t testing.TB, n *pipe.Network, a, b ginnel.Peer, alpn string) (*Conn, *Conn) {
	t.Helper()
	l, err := n.Host(b.ID).Listen(b.ID + ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := n.Host(a.ID).Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return plainConn(near, b, alpn), plainConn(far, a, alpn)
}

func plainConn(nc net.Conn, peer ginnel.Peer, alpn string) *Conn {
	r := newRaw(nc)
	return assemble(nil, nil, r, pki.Remote{Peer: peer}, alpn)
}

// tlsPair joins two Conns over TLS on loopback.
func tlsPair(t testing.TB, alpn string) (*Conn, *Conn) {
	t.Helper()
	a := newAuthority(t)
	return tlsPairOver(t, OS{}, "127.0.0.1:0", a.holder(t, router("r1")), a.holder(t, router("r2")), alpn)
}

func tlsPairOver(t testing.TB, n Network, listen string, ha, hb *pki.Holder, alpn string) (*Conn, *Conn) {
	t.Helper()
	l, err := n.Listen(listen)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *Conn, 1)
	go func() {
		defer close(accepted)
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s := secured(nc, pki.ServerConfig(hb, time.Now, alpn), false)
		if s.HandshakeContext(context.Background()) != nil {
			return
		}
		if c, err := Framed(s, IdentifyBy(hb)); err == nil {
			accepted <- c
		}
	}()
	c, err := DialFramed(t.Context(), n, l.Addr().String(), pki.ClientConfig(ha, time.Now, ginnel.Peer{}, alpn), IdentifyBy(ha))
	if err != nil {
		t.Fatal(err)
	}
	s := <-accepted
	if s == nil {
		t.Fatal("not accepted")
	}
	t.Cleanup(func() { c.Close(nil); s.Close(nil) })
	return c, s
}

// receiver is a Receiver of functions; nil ones take everything.
type receiver struct {
	frame   func(b *Batch, h wire.Header, frame []byte) error
	message func(m *wire.Message) error
}

func (r receiver) Frame(b *Batch, h wire.Header, frame []byte) error {
	if r.frame == nil {
		return nil
	}
	return r.frame(b, h, frame)
}

func (r receiver) Message(m *wire.Message) error {
	if r.message == nil {
		return nil
	}
	return r.message(m)
}

// run runs connections and ends them and their goroutines when stop is called.
func run(rcv Receiver, conns ...*Conn) (stop func()) {
	var g sync.WaitGroup
	for _, c := range conns {
		g.Go(func() { _ = c.Run(context.Background(), rcv) })
	}
	return func() {
		for _, c := range conns {
			c.Close(nil)
		}
		g.Wait()
	}
}

func dataFrame(label uint32, payload []byte) []byte {
	return wire.AppendFrame(nil, label, wire.Data, 0, payload)
}

// pass lets the time of a synctest bubble pass.
func pass(d time.Duration) { <-time.After(d) }
