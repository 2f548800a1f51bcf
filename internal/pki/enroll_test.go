// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func testToken() Token {
	return Token{
		Peer: router("r1"), Addresses: []ginnel.Address{"tls:127.0.0.1:7001", "tls:[::1]:7001"},
		Secret: NewSecret(), Expires: testNow().Add(time.Hour),
	}
}

func TestTokenRoundTrip(t *testing.T) {
	c := mustIssue(t, mustCA(t, testNetwork), controller("c1"), testNow())
	want := testToken()
	text, err := IssueToken(c, want)
	if err != nil {
		t.Fatal(err)
	}
	if line := string(text); !strings.HasPrefix(line, "ginnel-token-1.") || strings.ContainsAny(line, "\n =+/") {
		t.Errorf("not one line of base64url: %q", line)
	}
	got, err := ParseToken(append(text, '\r', '\n'))
	if err != nil {
		t.Fatal(err)
	}
	if got.Network != testNetwork || got.Peer != want.Peer || len(got.Addresses) != 2 || got.Addresses[1] != want.Addresses[1] ||
		got.CA != FingerprintOf(c.CA) || string(got.Secret) != string(want.Secret) || !got.Expires.Equal(want.Expires) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got.Anchor() != c.Anchor() {
		t.Errorf("got %v, want %v", got.Anchor(), c.Anchor())
	}
}

func TestTokenRefused(t *testing.T) {
	c := mustIssue(t, mustCA(t, testNetwork), controller("c1"), testNow())
	good, err := IssueToken(c, testToken())
	if err != nil {
		t.Fatal(err)
	}
	raw := func(domain string, change func(*wire.Token)) string {
		m := &wire.Token{
			Network: string(testNetwork), Role: "router", Id: "r1", CaFingerprint: make([]byte, 32),
			Secret: make([]byte, 32), Expires: testNow().Add(time.Hour).UnixNano(),
		}
		change(m)
		signed, err := proto.Marshal(mustSign(t, c, domain, m))
		if err != nil {
			t.Fatal(err)
		}
		return tokenPrefix + base64.RawURLEncoding.EncodeToString(signed)
	}
	token := func(change func(*wire.Token)) string { return raw(wire.DomainToken, change) }
	for _, test := range []struct {
		name, text string
		want       error
	}{
		{"empty", " \n", ErrMalformed},
		{"other text", "hello", ErrMalformed},
		{"other version", "ginnel-token-2." + string(good[len(tokenPrefix):]), ErrMalformed},
		{"prefix alone", tokenPrefix, ErrMalformed},
		{"cut off", string(good[:len(good)-8]), ErrMalformed},
		{"wrapped by a terminal", string(good[:50]) + "\n" + string(good[50:]), nil},
		{"with a space", string(good[:50]) + " " + string(good[50:]), ErrMalformed},
		{"changed", strings.Replace(string(good), string(good[30:34]), "AAAA", 1), nil},
		{"long", tokenPrefix + strings.Repeat("A", 1<<20), ErrMalformed},
		{"as made", token(func(*wire.Token) {}), nil},
		{"other domain", raw(wire.DomainDial, func(*wire.Token) {}), ErrSignature},
		{"controller", token(func(m *wire.Token) { m.Role = "controller" }), ErrMalformed},
		{"no role", token(func(m *wire.Token) { m.Role = "" }), ErrMalformed},
		{"no id", token(func(m *wire.Token) { m.Id = "" }), ErrMalformed},
		{"no network", token(func(m *wire.Token) { m.Network = "" }), ErrMalformed},
		{"short secret", token(func(m *wire.Token) { m.Secret = m.Secret[1:] }), ErrMalformed},
		{"short fingerprint", token(func(m *wire.Token) { m.CaFingerprint = m.CaFingerprint[1:] }), ErrMalformed},
		{"long fingerprint", token(func(m *wire.Token) { m.CaFingerprint = make([]byte, 33) }), ErrMalformed},
		{"address", token(func(m *wire.Token) { m.Addresses = []string{"127.0.0.1:1"} }), ErrMalformed},
		{"many addresses", token(func(m *wire.Token) { m.Addresses = make([]string, 65) }), ErrMalformed},
	} {
		_, err := ParseToken(Secret(test.text))
		if test.name == "changed" {
			if err == nil {
				t.Error("a changed token was taken")
			}
			continue
		}
		wantErr(t, test.name, err, test.want)
	}
	for _, expires := range []time.Time{testNow(), testNow().Add(-time.Hour), {}} {
		wantErr(t, "expired", Token{Expires: expires}.Expired(testNow()), ErrTokenExpired)
	}
	wantErr(t, "not expired", testToken().Expired(testNow()), nil)
	bad := testToken()
	bad.Secret = bad.Secret[:16]
	if _, err := IssueToken(c, bad); err == nil {
		t.Error("token with a short secret issued")
	}
}

func FuzzParseToken(f *testing.F) {
	good, err := IssueToken(mustIssue(f, mustCA(f, testNetwork), controller("c1"), testNow()), testToken())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(good))
	f.Add(tokenPrefix)
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(Secret(text))
		if err == nil && token.check() != nil {
			t.Errorf("bad token taken: %v", token.check())
		}
	})
}

// A token serves the first key that presents it, as often as it asks until the
// token expires; another key, an expired or a replaced token is refused.
func TestL103_TokenTwiceExpiredReplaced(t *testing.T) {
	secret, replaced := NewSecret(), NewSecret()
	first, second := mustKey(t), mustKey(t)
	hash := keyHash(t, first.Public())
	request := func(key *ecdsa.PrivateKey, peer ginnel.Peer, secret Secret) *wire.EnrollRequest {
		req, err := NewEnrollRequest(key, testNetwork, peer, secret)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	open := Enrollment{Network: testNetwork, Peer: router("r1"), SecretHash: SecretHash(secret), Expires: testNow().Add(time.Hour)}
	bound := open
	bound.Key = hash
	for _, test := range []struct {
		name   string
		record Enrollment
		req    *wire.EnrollRequest
		after  time.Duration
		want   error
		bind   bool
	}{
		{"first use", open, request(first, router("r1"), secret), 0, nil, true},
		{"same key again", bound, request(first, router("r1"), secret), 59 * time.Minute, nil, false},
		{"other key", bound, request(second, router("r1"), secret), 0, ErrTokenUsed, false},
		{"expired", open, request(first, router("r1"), secret), time.Hour, ErrTokenExpired, false},
		{"expired, same key", bound, request(first, router("r1"), secret), time.Hour, ErrTokenExpired, false},
		{"replaced token", open, request(first, router("r1"), replaced), 0, ErrSecret, false},
		{"replaced token, same key", bound, request(first, router("r1"), replaced), 0, ErrSecret, false},
		{"wrong secret after expiry", open, request(first, router("r1"), replaced), time.Hour, ErrSecret, false},
		{"no secret", open, request(first, router("r1"), nil), 0, ErrSecret, false},
		{"no secret, none in the record", Enrollment{Network: testNetwork, Peer: router("r1"), Expires: open.Expires}, request(first, router("r1"), nil), 0, ErrSecret, false},
		{"other id", open, request(first, router("r2"), secret), 0, ErrWrongPeer, false},
		{"other role", open, request(first, identity("r1"), secret), 0, ErrWrongPeer, false},
	} {
		grant, err := Authorize(test.record, test.req, testNow().Add(test.after))
		wantErr(t, test.name, err, test.want)
		if err == nil && (grant.Peer != router("r1") || grant.KeyHash != hash || !grant.Public.Equal(first.Public()) || grant.Bind != test.bind) {
			t.Errorf("%s: got %+v", test.name, grant)
		}
	}
}

func TestCSRRefused(t *testing.T) {
	secret := NewSecret()
	open := Enrollment{Network: testNetwork, Peer: router("r1"), SecretHash: SecretHash(secret), Expires: testNow().Add(time.Hour)}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(key *ecdsa.PrivateKey, names ...string) []byte {
		template := new(x509.CertificateRequest)
		for _, name := range names {
			u, err := url.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			template.URIs = append(template.URIs, u)
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	key := mustKey(t)
	damaged := request(key)
	damaged[len(damaged)-1] ^= 1
	for _, test := range []struct {
		name string
		csr  []byte
		want error
	}{
		{"no names", request(key), nil},
		{"its name", request(key, "spiffe://acme.example/router/r1"), nil},
		{"other name", request(key, "spiffe://acme.example/router/r2"), ErrRequest},
		{"other network", request(key, "spiffe://other.example/router/r1"), ErrRequest},
		{"two names", request(key, "spiffe://acme.example/router/r1", "spiffe://acme.example/controller/r1"), ErrRequest},
		{"other curve", request(p384), ErrRequest},
		{"not signed by its key", damaged, ErrRequest},
		{"none", nil, ErrRequest},
		{"large", append(request(key), string(NewSecret())+strings.Repeat("x", maxCSR)...), ErrRequest},
	} {
		_, err := Authorize(open, &wire.EnrollRequest{Role: "router", Id: "r1", Secret: secret, Csr: test.csr}, testNow())
		wantErr(t, test.name, err, test.want)
	}
}

func TestAuthorizeRenewal(t *testing.T) {
	const day = 24 * time.Hour
	ca := mustCA(t, testNetwork)
	c := mustIssue(t, ca, identity("alice"), testNow())
	stranger := mustIssue(t, mustCA(t, testNetwork), identity("alice"), testNow())
	for _, test := range []struct {
		name  string
		leaf  *x509.Certificate
		key   *ecdsa.PrivateKey
		peer  ginnel.Peer
		after time.Duration
		want  error
	}{
		{"in time", c.Leaf, c.Key, identity("alice"), 60 * day, nil},
		{"in the grace", c.Leaf, c.Key, identity("alice"), 119 * day, nil},
		{"too late", c.Leaf, c.Key, identity("alice"), 121 * day, ErrExpired},
		{"other key", c.Leaf, mustKey(t), identity("alice"), 60 * day, ErrKeyChanged},
		{"other id", c.Leaf, c.Key, identity("bob"), 60 * day, ErrWrongPeer},
		{"other role", c.Leaf, c.Key, router("alice"), 60 * day, ErrWrongPeer},
		{"stranger", stranger.Leaf, stranger.Key, identity("alice"), 60 * day, ErrStranger},
	} {
		req, err := NewEnrollRequest(test.key, testNetwork, test.peer, nil)
		if err != nil {
			t.Fatal(err)
		}
		grant, err := AuthorizeRenewal(test.leaf, ca.Cert, req, testNow().Add(test.after))
		wantErr(t, test.name, err, test.want)
		if err == nil && (grant.KeyHash != c.KeyHash() || grant.Peer != c.Self || grant.Bind) {
			t.Errorf("%s: got %+v", test.name, grant)
		}
	}
}

func TestAcceptEnrollment(t *testing.T) {
	ca, stranger := mustCA(t, testNetwork), mustCA(t, testNetwork)
	key := mustKey(t)
	anchor := mustIssue(t, ca, controller("c1"), testNow()).Anchor()
	answer := func(ca *CA, peer ginnel.Peer, key *ecdsa.PrivateKey) *wire.EnrollResponse {
		return &wire.EnrollResponse{Certificate: mustReissue(t, ca, peer, key, testNow()).Leaf.Raw, Ca: ca.Cert.Raw}
	}
	good := answer(ca, router("r1"), key)
	for _, test := range []struct {
		name string
		resp *wire.EnrollResponse
		want error
	}{
		{"good", good, nil},
		{"other peer", answer(ca, router("r2"), key), ErrWrongPeer},
		{"other key", answer(ca, router("r1"), mustKey(t)), ErrMalformed},
		{"stranger", answer(stranger, router("r1"), key), ErrStranger},
		{"stranger's leaf, our CA", &wire.EnrollResponse{Certificate: answer(stranger, router("r1"), key).GetCertificate(), Ca: ca.Cert.Raw}, ErrStranger},
		{"no CA", &wire.EnrollResponse{Certificate: good.GetCertificate()}, ErrMalformed},
		{"no certificate", &wire.EnrollResponse{Ca: good.GetCa()}, ErrMalformed},
		{"nothing", nil, ErrMalformed},
	} {
		c, err := AcceptEnrollment(key, anchor, router("r1"), test.resp, testNow())
		wantErr(t, test.name, err, test.want)
		if err == nil && (c.Self != router("r1") || c.Network != testNetwork) {
			t.Errorf("%s: got %v", test.name, c)
		}
	}
}
