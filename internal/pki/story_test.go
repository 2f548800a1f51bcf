// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// A listening router is enrolled through the controller's dial, speaks ctrl
// from then on, and is renewed after its certificate has ended.
func TestRouterEnrollsThroughDial(t *testing.T) {
	ca := mustCA(t, testNetwork)
	c1 := mustIssue(t, ca, controller("c1"), testNow())
	secret := NewSecret()
	text, err := IssueToken(c1, Token{Peer: router("r1"), Secret: secret, Expires: testNow().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	record := Enrollment{Network: testNetwork, Peer: router("r1"), SecretHash: SecretHash(secret), Expires: testNow().Add(time.Hour)}

	// router init: a key; router run: listens with it.
	key := mustKey(t)
	token, err := ParseToken(text)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := SelfSigned(key, testNow())
	if err != nil {
		t.Fatal(err)
	}
	dial := ClientConfig(NewHolder(c1), testNow, router("r1"), wire.ALPNCtrl, wire.ALPNEnroll)
	got := shake(t, dial, EnrollServerConfig(fresh, token.Anchor(), testNow))
	wantErr(t, "controller", got.clientErr, nil)
	wantErr(t, "router", got.serverErr, nil)

	req, err := NewEnrollRequest(key, token.Network, token.Peer, token.Secret)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := Authorize(record, req, testNow())
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := presentedKeyHash(got.client); err != nil || shown != grant.KeyHash {
		t.Errorf("the router showed key %s, %v, and asks for %s", shown, err, grant.KeyHash)
	}
	cred, err := AcceptEnrollment(key, token.Anchor(), token.Peer, mustAnswer(t, ca, grant, testNow()), testNow())
	if err != nil {
		t.Fatal(err)
	}

	got = shake(t, dial, ServerConfig(NewHolder(cred), testNow, wire.ALPNCtrl, wire.ALPNLink, wire.ALPNEdge, wire.ALPNEnroll))
	wantErr(t, "controller", got.clientErr, nil)
	if got.client.NegotiatedProtocol != wire.ALPNCtrl {
		t.Errorf("got %q", got.client.NegotiatedProtocol)
	}
	checkPeerOf(t, got.client, ca, cred)

	// Switched off for too long: only enroll is left, with the old certificate.
	now := later(LeafLife + 10*24*time.Hour)
	c1 = mustReissue(t, ca, c1.Self, c1.Key, now())
	dial = ClientConfig(NewHolder(c1), now, router("r1"), wire.ALPNCtrl, wire.ALPNEnroll)
	got = shake(t, dial, EnrollServerConfig(*cred.TLS(), cred.Anchor(), now))
	wantErr(t, "controller", got.clientErr, nil)
	renew(t, ca, got.client.PeerCertificates[0], cred, now())
}

// An identity enrolls and renews through an edge router, which it verifies, as
// it verifies the controller inside.
func TestIdentityEnrollsThroughEdgeRouter(t *testing.T) {
	ca := mustCA(t, testNetwork)
	c1, edge := mustIssue(t, ca, controller("c1"), testNow()), mustIssue(t, ca, router("r1"), testNow())
	anchor := c1.Anchor()
	key := mustKey(t)
	for server, want := range map[*Credential]ginnel.Peer{edge: router(""), c1: controller("")} {
		got := shake(t, EnrollClientConfig(nil, anchor, want, testNow), ServerConfig(NewHolder(server), testNow, wire.ALPNEnroll))
		wantErr(t, "identity at "+server.String(), got.clientErr, nil)
		wantErr(t, server.String(), got.serverErr, nil)
	}
	secret := NewSecret()
	req, err := NewEnrollRequest(key, testNetwork, identity("alice"), secret)
	if err != nil {
		t.Fatal(err)
	}
	record := Enrollment{Network: testNetwork, Peer: identity("alice"), SecretHash: SecretHash(secret), Expires: testNow().Add(time.Hour)}
	grant, err := Authorize(record, req, testNow())
	if err != nil {
		t.Fatal(err)
	}
	cred, err := AcceptEnrollment(key, anchor, identity("alice"), mustAnswer(t, ca, grant, testNow()), testNow())
	if err != nil {
		t.Fatal(err)
	}

	now := later(LeafLife + 10*24*time.Hour)
	c1 = mustReissue(t, ca, c1.Self, c1.Key, now())
	got := shake(t, EnrollClientConfig(cred.TLS(), cred.Anchor(), controller(""), now), ServerConfig(NewHolder(c1), now, wire.ALPNEnroll))
	wantErr(t, "identity", got.clientErr, nil)
	renew(t, ca, got.server.PeerCertificates[0], cred, now())
}

func mustAnswer(t *testing.T, ca *CA, grant Grant, now time.Time) *wire.EnrollResponse {
	t.Helper()
	leaf, err := ca.Issue(now, grant.Peer, grant.Public)
	if err != nil {
		t.Fatal(err)
	}
	return &wire.EnrollResponse{Certificate: leaf.Raw, Ca: ca.Cert.Raw, Network: string(ca.Network)}
}

// renew renews cred, whose leaf was shown over a connection.
func renew(t *testing.T, ca *CA, shown *x509.Certificate, cred *Credential, now time.Time) {
	t.Helper()
	req, err := NewEnrollRequest(cred.Key, cred.Network, cred.Self, nil)
	if err != nil {
		t.Fatal(err)
	}
	grant, err := AuthorizeRenewal(shown, ca.Cert, req, now)
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := AcceptEnrollment(cred.Key, cred.Anchor(), cred.Self, mustAnswer(t, ca, grant, now), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := NewHolder(cred).Swap(renewed); err != nil {
		t.Fatal(err)
	}
}
