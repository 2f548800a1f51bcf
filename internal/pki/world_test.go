// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

const testNetwork ginnel.NetworkID = "acme.example"

// testNow is the instant of all tests that say nothing else.
func testNow() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// later gives a clock that stands d after testNow.
func later(d time.Duration) func() time.Time {
	return func() time.Time { return testNow().Add(d) }
}

func controller(id string) ginnel.Peer { return ginnel.Peer{Role: ginnel.RoleController, ID: id} }
func router(id string) ginnel.Peer     { return ginnel.Peer{Role: ginnel.RoleRouter, ID: id} }
func identity(id string) ginnel.Peer   { return ginnel.Peer{Role: ginnel.RoleIdentity, ID: id} }

// mustCA gives a CA that is a year old.
func mustCA(t testing.TB, network ginnel.NetworkID) *CA {
	t.Helper()
	ca, err := NewCA(network, testNow().AddDate(-1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func mustKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// keyHash is the hash that the store names a key by, of what a library encodes.
func keyHash(t testing.TB, public crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(der))
}

// mustIssue gives a credential issued at an instant for a new key.
func mustIssue(t testing.TB, ca *CA, peer ginnel.Peer, at time.Time) *Credential {
	t.Helper()
	return mustReissue(t, ca, peer, mustKey(t), at)
}

func mustReissue(t testing.TB, ca *CA, peer ginnel.Peer, key *ecdsa.PrivateKey, at time.Time) *Credential {
	t.Helper()
	leaf, err := ca.Issue(at, peer, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCredential(key, leaf, ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustForge gives a leaf that ca would never issue: that of peer, changed.
func mustForge(t testing.TB, ca *CA, peer ginnel.Peer, key *ecdsa.PrivateKey, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template, err := ca.Issue(testNow(), peer, key.Public())
	if err != nil {
		t.Fatal(err)
	}
	template.ExtraExtensions = nil
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// shaken is what the two ends of a handshake say.
type shaken struct {
	client, server           tls.ConnectionState
	clientErr, serverErr     error
	clientBytes, serverBytes int // of the first flight of each
}

// shake runs a handshake over loopback, and then carries one byte from server
// to client, so that the client has heard the server's verdict too.
func shake(t testing.TB, client, server *tls.Config) shaken {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var out shaken
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer accepted.Close()
		conn := tls.Server(&firstWrite{Conn: accepted, n: &out.serverBytes}, server)
		if out.serverErr = conn.Handshake(); out.serverErr != nil {
			return
		}
		out.server = conn.ConnectionState()
		_, out.serverErr = conn.Write([]byte{1})
	}()
	conn := tls.Client(&firstWrite{Conn: raw, n: &out.clientBytes}, client)
	if out.clientErr = conn.Handshake(); out.clientErr == nil {
		out.client = conn.ConnectionState()
		_, out.clientErr = io.ReadFull(conn, make([]byte, 1))
	}
	raw.Close()
	<-done
	return out
}

// firstWrite notes the size of the first write.
type firstWrite struct {
	net.Conn
	n *int
}

func (f *firstWrite) Write(b []byte) (int, error) {
	if *f.n == 0 {
		*f.n = len(b)
	}
	return f.Conn.Write(b)
}

// wantErr fails the test unless err is want; nil wants none.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	switch {
	case want == nil && err != nil:
		t.Errorf("%s: got error %v, want none", what, err)
	case want != nil && !errors.Is(err, want):
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}
