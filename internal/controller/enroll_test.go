// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// ask enrolls over a connection, with a secret or to renew.
func ask(t io.ReadWriter, key *ecdsa.PrivateKey, peer ginnel.Peer, secret pki.Secret) (*wire.EnrollResponse, error) {
	req, err := pki.NewEnrollRequest(key, "acme", peer, secret)
	if err != nil {
		return nil, err
	}
	if err := transport.WriteMessage(t, &wire.Message{Id: 1, Body: &wire.Message_EnrollRequest{EnrollRequest: req}}); err != nil {
		return nil, err
	}
	m, err := transport.ReadMessage(t)
	if err != nil {
		return nil, err
	}
	if f := m.GetFailure(); f != nil {
		return nil, f.DialError()
	}
	return m.GetEnrollResponse(), nil
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// token reads the token of something just created.
func (b *testbed) token(made api.Created, err error) pki.Token {
	b.Helper()
	b.must(err)
	token, err := pki.ParseToken(pki.Secret(made.Token))
	b.must(err)
	return token
}

// enroll enrolls over the controller's listener.
func (b *testbed) enroll(key *ecdsa.PrivateKey, peer ginnel.Peer, secret pki.Secret) (*wire.EnrollResponse, error) {
	b.Helper()
	t := b.enrollTLS(nil)
	defer t.Close()
	return ask(t, key, peer, secret)
}

func TestL103_TokenOnce(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		alice := ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"}
		token := b.token(b.api.Identities.Create(t.Context(), api.IdentityCreate{Identity: ginnel.Identity{ID: "alice"}}))
		key := newKey(t)
		if _, err := b.enroll(key, alice, pki.NewSecret()); err == nil {
			t.Error("enrolled with a wrong secret")
		}
		if _, err := b.enroll(key, ginnel.Peer{Role: ginnel.RoleIdentity, ID: "bob"}, token.Secret); err == nil {
			t.Error("enrolled another")
		}
		for range 2 { // an answer may be lost
			resp, err := b.enroll(key, alice, token.Secret)
			b.must(err)
			if _, err := pki.AcceptEnrollment(key, token.Anchor(), alice, resp, time.Now()); err != nil {
				t.Error(err)
			}
		}
		if i, _ := b.store.View().Identities().Get("alice"); i.Key == "" {
			t.Error("the key is not stored")
		}
		if _, err := b.enroll(newKey(t), alice, token.Secret); err == nil {
			t.Error("a second key used the token")
		}

		// A new token replaces the old one, and lets another key in.
		next := b.token(b.api.Token(t.Context(), ginnel.RoleIdentity, "alice", api.TokenCreate{TokenLife: ginnel.Duration(time.Hour)}))
		if _, err := b.enroll(key, alice, token.Secret); err == nil {
			t.Error("the replaced token was taken")
		}
		b.wait(2 * time.Hour)
		if _, err := b.enroll(newKey(t), alice, next.Secret); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("an expired token: %v", err)
		}
	})
}

func TestEnrollNeedsStore(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		token := b.token(b.api.Identities.Create(t.Context(), api.IdentityCreate{Identity: ginnel.Identity{ID: "alice"}}))
		b.backend.SetDown(true)
		_, err := b.enroll(newKey(t), token.Peer, token.Secret)
		b.backend.SetDown(false)
		if !isCode(err, ginnel.StoreUnavailable) {
			t.Errorf("without quorum: %v", err)
		}
	})
}

func TestRenewal(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		alice := b.identity("alice")
		renew := func(c *pki.Credential, key *ecdsa.PrivateKey) error {
			conn := b.enrollTLS(c.TLS())
			defer conn.Close()
			_, err := ask(conn, key, c.Self, nil)
			return err
		}
		b.must(renew(alice, alice.Key))
		// One that has ended gets in for this and nothing else.
		leaf, err := b.ca.IssueFor(time.Now(), -time.Minute, alice.Self, alice.Key.Public())
		b.must(err)
		lapsed, err := pki.NewCredential(alice.Key, leaf, b.ca.Cert)
		b.must(err)
		b.must(renew(lapsed, alice.Key))
		if err := b.visit(lapsed, "http/1.1"); err == nil {
			t.Error("a certificate that has ended was let in to the API")
		}
		if renew(alice, newKey(t)) == nil {
			t.Error("another key was certified")
		}
		if renew(b.credential(ginnel.RoleIdentity, "alice"), alice.Key) == nil {
			t.Error("a key that did not enroll was certified")
		}
		b.must(b.api.Identities.Update(t.Context(), "alice", api.IdentityCreate{Identity: ginnel.Identity{Disabled: true}}))
		if renew(alice, alice.Key) == nil {
			t.Error("a disabled identity renewed")
		}
	})
}

// visit connects to the controller's port and leaves.
func (b *testbed) visit(c *pki.Credential, alpn string) error {
	b.Helper()
	cfg := pki.ClientConfig(pki.NewHolder(c), time.Now, ginnel.Peer{Role: ginnel.RoleController}, alpn)
	conn, err := transport.Dial(b.Context(), b.net.Host("visitor"), "c1:1", cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	b.must(conn.SetReadDeadline(time.Now().Add(time.Second)))
	// In TLS 1.3 a refusal comes after the client's end is done.
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// freshRouter listens without a certificate until a controller enrolls it.
type freshRouter struct {
	*testRouter
	token   pki.Token
	key     *ecdsa.PrivateKey
	refused []error

	mu sync.Mutex
}

func (b *testbed) freshRouter(id string, at ginnel.Address) *freshRouter {
	b.Helper()
	token := b.token(b.api.Routers.Create(b.Context(), api.RouterCreate{
		Router: ginnel.Router{ID: ginnel.RouterID(id)}, CtrlAddresses: []string{string(at)},
	}))
	r := &freshRouter{testRouter: &testRouter{b: b, id: id, boot: "b", hello: &wire.RouterHello{}}, token: token, key: newKey(b)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	b.routers = append(b.routers, r.testRouter)
	return r
}

// listenFresh serves one enrollment, then ctrl.
func (r *freshRouter) listenFresh(at ginnel.Address) {
	b := r.b
	cert, err := pki.SelfSigned(r.key, time.Now())
	b.must(err)
	l, err := b.net.Host(r.id).Listen(at.HostPort())
	b.must(err)
	r.all.Go(func() {
		defer context.AfterFunc(r.ctx, func() { l.Close() })()
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(nc, pki.EnrollServerConfig(cert, r.token.Anchor(), time.Now))
			resp, err := ask(conn, r.key, r.token.Peer, r.token.Secret)
			if err != nil {
				r.mu.Lock()
				r.refused = append(r.refused, err)
				r.mu.Unlock()
				nc.Close()
				continue
			}
			c, err := pki.AcceptEnrollment(r.key, r.token.Anchor(), r.token.Peer, resp, time.Now())
			if err != nil {
				b.Error(err)
				return
			}
			r.holder = pki.NewHolder(c)
			l.Close()
			r.listen(at)
			conn.Close()
			return
		}
	})
}

// A fresh router is dialed by a stranger, who learns nothing and gets nowhere,
// and then enrolled through its own controller's dial.
func TestL106_EnrolledThroughTheDial(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.freshRouter("r1", "tls:r1:1")
		r.listenFresh("tls:r1:1")
		strangers, err := pki.NewCA("acme", time.Now())
		b.must(err)
		stranger, err := NewCredential(strangers, ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
		b.must(err)
		cfg := pki.ClientConfig(pki.NewHolder(stranger), time.Now, r.token.Peer, wire.ALPNCtrl, wire.ALPNEnroll)
		if conn, err := transport.Dial(t.Context(), b.net.Host("x"), "r1:1", cfg); err == nil {
			if m, err := transport.ReadMessage(conn); err == nil {
				t.Errorf("the stranger was told %v", m)
			}
			conn.Close()
		}
		synctest.Wait()
		if len(r.refused) != 1 {
			t.Fatalf("refused: %v", r.refused)
		}
		b.wait(2 * time.Second)
		if !r.connected() {
			t.Errorf("not enrolled and connected: %+v", r.dialState())
		}
		b.wantValid()
	})
}

// The secret must be that of the router that was dialed.
func TestEnrollOfAnotherRouter(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		wrong := b.freshRouter("r2", "tls:nowhere:1")
		r := b.freshRouter("r1", "tls:r1:1")
		wrong.id = "r1" // listens where r1 is expected, with r2's token
		wrong.listenFresh("tls:r1:1")
		b.wait(3 * time.Second)
		d := r.dialState()
		if d.Connected || !strings.Contains(d.LastError, "wrong peer") {
			t.Errorf("dial of r1: %+v", d)
		}
		if router, _ := b.store.View().Routers().Get("r2"); router.Key != "" {
			t.Error("r2 was enrolled")
		}
	})
}

// An identity enrolls through an edge router, which sees nothing but bytes.
func TestRelayedEnrollment(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		edge := b.router("r1")
		edge.hello = &wire.RouterHello{EdgeAddress: "tls:r1:443"}
		b.must(edge.dial())
		token := b.token(b.api.Identities.Create(t.Context(), api.IdentityCreate{Identity: ginnel.Identity{ID: "alice"}}))
		if len(token.Addresses) != 1 || token.Addresses[0] != "tls:r1:443" {
			t.Errorf("edge routers in the token: %v", token.Addresses)
		}
		conn := tls.Client(newRelayedConn(edge, 7), pki.EnrollClientConfig(nil, token.Anchor(), ginnel.Peer{Role: ginnel.RoleController}, time.Now))
		key := newKey(t)
		resp, err := ask(conn, key, token.Peer, token.Secret)
		b.must(err)
		if _, err := pki.AcceptEnrollment(key, token.Anchor(), token.Peer, resp, time.Now()); err != nil {
			t.Error(err)
		}
		if len(resp.GetRouters()) != 1 || resp.GetRouters()[0].GetId() != "r1" {
			t.Errorf("routers: %v", resp.GetRouters())
		}
		b.wait(time.Second)
		if n := len(b.c.channels.get("r1").relays.streams); n != 0 {
			t.Errorf("%d streams left", n)
		}
	})
}

// Streams that say nothing end in time, and are bounded in number and size.
// A token can be made before the routers have connected for the first time.
func TestTokenNamesRoutersNotHeardYet(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		for _, in := range []api.RouterCreate{
			{Router: ginnel.Router{ID: "r1"}, CtrlAddresses: []string{"tls:r1:443", "tls:other:443"}},
			{Router: ginnel.Router{ID: "r2"}}, // dials: where it listens nobody knows
			{Router: ginnel.Router{ID: "r3", Disabled: true}, CtrlAddresses: []string{"tls:r3:443"}},
		} {
			b.token(b.api.Routers.Create(t.Context(), in))
		}
		alice := api.IdentityCreate{Identity: ginnel.Identity{ID: "alice"}}
		token := b.token(b.api.Identities.Create(t.Context(), alice))
		if len(token.Addresses) != 1 || token.Addresses[0] != "tls:r1:443" {
			t.Errorf("edge routers in the token: %v", token.Addresses)
		}
	})
}

func TestRelayBounds(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		edge := b.router("r1")
		b.must(edge.dial())
		send := func(m *wire.Message) { t.Helper(); b.must(edge.conn().Notify(m)) }
		for n := range uint64(maxRelays + 6) {
			send(&wire.Message{Body: &wire.Message_RelayOpen{RelayOpen: &wire.RelayOpen{Stream: n}}})
		}
		streams := func() int {
			rs := b.c.channels.get("r1").relays
			rs.mu.Lock()
			defer rs.mu.Unlock()
			return len(rs.streams)
		}
		if n := streams(); n != maxRelays {
			t.Errorf("%d streams", n)
		}
		if n := len(take(edge, (*wire.Message).GetRelayClose)); n != 6 {
			t.Errorf("%d refused", n)
		}
		for range maxRelayBytes/wire.MaxRelay + 1 {
			// A TLS record that announces more than it brings.
			send(&wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Stream: 0, Data: append([]byte{22, 3, 1, 64, 0}, make([]byte, wire.MaxRelay-5)...)}}})
		}
		if n := streams(); n != maxRelays-1 {
			t.Errorf("%d streams after one went over its bound", n)
		}
		b.wait(enrollTime + time.Second)
		if n := streams(); n != 0 {
			t.Errorf("%d streams after their time", n)
		}
	})
}

// newRelayedConn is an enrollee's stream through an edge router.
func newRelayedConn(r *testRouter, stream uint64) *relayedConn {
	c := &relayedConn{r: r, stream: stream}
	if err := r.conn().Notify(&wire.Message{Body: &wire.Message_RelayOpen{RelayOpen: &wire.RelayOpen{Stream: stream, Remote: "x"}}}); err != nil {
		r.b.Fatal(err)
	}
	return c
}

type relayedConn struct {
	relayDeadlines
	r      *testRouter
	stream uint64
	in     []byte
}

func (c *relayedConn) Read(p []byte) (int, error) {
	for len(c.in) == 0 {
		ended := len(take(c.r, (*wire.Message).GetRelayClose)) > 0
		for _, d := range take(c.r, (*wire.Message).GetRelayData) {
			c.in = append(c.in, d.GetData()...)
		}
		if ended && len(c.in) == 0 {
			return 0, io.EOF
		}
		<-time.After(time.Millisecond)
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *relayedConn) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		part := rest[:min(len(rest), wire.MaxRelay)]
		rest = rest[len(part):]
		m := &wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Stream: c.stream, Data: part}}}
		if err := c.r.conn().Notify(m); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *relayedConn) Close() error { return nil }

// relayDeadlines are those of a relay: none.
type relayDeadlines struct{ *relay }

func isCode(err error, code ginnel.Code) bool { return errors.Is(err, code) }

// The controller's own certificate is renewed in time, and channels stay up.
func TestOwnRenewal(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1", "tls:r1:1")
		before, channel := b.holder.Load(), b.c.channels.get("r1")
		kept := 0
		b.c.renewed = func(*pki.Credential) error { kept++; return nil }
		b.must(b.c.renewNow())
		after := b.holder.Load()
		if after == before || kept != 1 || !after.Key.Equal(before.Key) {
			t.Error("not renewed")
		}
		b.wait(time.Minute)
		if b.c.channels.get("r1") != channel {
			t.Error("the channel did not stay")
		}
	})
}

// Only an enabled administrator with the key of the store is let in.
func TestAdmins(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		admin := b.credential(ginnel.RoleIdentity, "boss")
		state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{admin.Leaf}}
		for _, tt := range []struct {
			name string
			is   ginnel.Identity
			want bool
		}{
			{"admin", ginnel.Identity{Admin: true, Key: admin.KeyHash()}, true},
			{"no admin", ginnel.Identity{Key: admin.KeyHash()}, false},
			{"reader", ginnel.Identity{ReadOnly: true, Key: admin.KeyHash()}, true},
			{"disabled", ginnel.Identity{Admin: true, Disabled: true, Key: admin.KeyHash()}, false},
			{"another key", ginnel.Identity{Admin: true, Key: "other"}, false},
		} {
			tt.is.ID = "boss"
			b.update(func(tx *store.Tx) error { return tx.Identities().Put(tt.is) })
			if _, got := b.c.admin(&state); got != tt.want {
				t.Errorf("%s: %t", tt.name, got)
			}
		}
	})
}
