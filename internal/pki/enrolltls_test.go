// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// A fresh router listens. A stranger that dials it first and offers to enroll
// it is refused, whatever it shows besides; the network's controller is not.
func TestL106_StrangerOffersToEnroll(t *testing.T) {
	ca := mustCA(t, testNetwork)
	own := mustIssue(t, ca, controller("c1"), testNow())
	fresh, err := SelfSigned(mustKey(t), testNow())
	if err != nil {
		t.Fatal(err)
	}
	server := EnrollServerConfig(fresh, own.Anchor(), testNow)
	stranger := mustIssue(t, mustCA(t, testNetwork), controller("c1"), testNow())
	for _, test := range []struct {
		name   string
		dialer *Credential
		filler [][]byte
		want   error
	}{
		{"controller", own, [][]byte{ca.Cert.Raw}, nil},
		{"controller, CA later in the chain", own, [][]byte{stranger.Leaf.Raw, ca.Cert.Raw}, nil},
		{"controller that does not show the CA", own, nil, ErrStranger},
		{"stranger", stranger, [][]byte{stranger.CA.Raw}, ErrStranger},
		{"stranger showing our CA", stranger, [][]byte{ca.Cert.Raw}, ErrStranger},
		{"stranger showing our controller", stranger, [][]byte{own.Leaf.Raw, ca.Cert.Raw}, ErrStranger},
		{"router", mustIssue(t, ca, router("r2"), testNow()), [][]byte{ca.Cert.Raw}, ErrRole},
		{"identity", mustIssue(t, ca, identity("alice"), testNow()), [][]byte{ca.Cert.Raw}, ErrRole},
		{"controller that ended", mustIssue(t, ca, controller("c1"), testNow().Add(-LeafLife-time.Hour)), [][]byte{ca.Cert.Raw}, ErrExpired},
	} {
		client := baseConfig(testNow)
		client.NextProtos = []string{wire.ALPNCtrl, wire.ALPNEnroll}
		client.Certificates = []tls.Certificate{{
			Certificate: append([][]byte{test.dialer.Leaf.Raw}, test.filler...), PrivateKey: test.dialer.Key,
		}}
		wantErr(t, test.name, shake(t, client, server).serverErr, test.want)
	}
	client := baseConfig(testNow)
	client.NextProtos = []string{wire.ALPNEnroll}
	if got := shake(t, client, server); got.serverErr == nil {
		t.Error("dialer without certificate accepted")
	}
	client = ClientConfig(NewHolder(own), testNow, router("r1"), wire.ALPNCtrl)
	if got := shake(t, client, server); got.serverErr == nil {
		t.Error("a router without certificate answered a protocol other than enroll")
	}
	other := own.Anchor()
	other.Network = "other.example"
	client = ClientConfig(NewHolder(own), testNow, router("r1"), wire.ALPNEnroll)
	wantErr(t, "token of another network", shake(t, client, EnrollServerConfig(fresh, other, testNow)).serverErr, ErrStranger)
}

func TestControllerDialsToEnroll(t *testing.T) {
	const day = 24 * time.Hour
	ca := mustCA(t, testNetwork)
	old := mustIssue(t, ca, router("r1"), testNow())
	fresh, err := SelfSigned(old.Key, testNow())
	if err != nil {
		t.Fatal(err)
	}
	stranger := mustIssue(t, mustCA(t, testNetwork), router("r1"), testNow())
	for _, test := range []struct {
		name  string
		cert  tls.Certificate
		after time.Duration
		alpn  string // that the router negotiates, whatever its state
		want  error
	}{
		{"self-signed", fresh, 0, wire.ALPNEnroll, nil},
		{"self-signed on ctrl", fresh, 0, wire.ALPNCtrl, ErrStranger},
		{"wanted router that ended", *old.TLS(), LeafLife + 29*day, wire.ALPNEnroll, nil},
		{"wanted router that ended on ctrl", *old.TLS(), LeafLife + 29*day, wire.ALPNCtrl, ErrExpired},
		{"wanted router that ended too long ago", *old.TLS(), LeafLife + 31*day, wire.ALPNEnroll, ErrExpired},
		{"other router", *mustIssue(t, ca, router("r2"), testNow()).TLS(), 0, wire.ALPNEnroll, ErrWrongPeer},
		{"identity", *mustIssue(t, ca, identity("r1"), testNow()).TLS(), 0, wire.ALPNEnroll, ErrRole},
		{"issued by a stranger", *stranger.TLS(), 0, wire.ALPNEnroll, ErrStranger},
	} {
		own := mustIssue(t, ca, controller("c1"), testNow().Add(test.after))
		client := ClientConfig(NewHolder(own), later(test.after), router("r1"), wire.ALPNCtrl, wire.ALPNEnroll)
		server := EnrollServerConfig(test.cert, own.Anchor(), later(test.after))
		server.NextProtos = []string{test.alpn}
		if test.alpn != wire.ALPNEnroll {
			server.VerifyConnection = nil
		}
		got := shake(t, client, server)
		wantErr(t, test.name, got.clientErr, test.want)
		if test.want != nil {
			continue
		}
		wantErr(t, test.name+" at the router", got.serverErr, nil)
		if hash, err := presentedKeyHash(got.client); err != nil || hash != old.KeyHash() {
			t.Errorf("%s: got key %s, %v, want %s", test.name, hash, err, old.KeyHash())
		}
	}
}

func TestEnrolleeDials(t *testing.T) {
	ca := mustCA(t, testNetwork)
	anchor := mustIssue(t, ca, controller("c1"), testNow()).Anchor()
	stranger := mustCA(t, testNetwork)
	alice := mustIssue(t, ca, identity("alice"), testNow())
	for _, test := range []struct {
		name   string
		cert   *tls.Certificate
		server *Credential
		want   ginnel.Peer
		client error
		refuse error
	}{
		{"controller", nil, mustIssue(t, ca, controller("c1"), testNow()), controller(""), nil, nil},
		{"edge router", nil, mustIssue(t, ca, router("r1"), testNow()), router(""), nil, nil},
		{"that edge router", nil, mustIssue(t, ca, router("r1"), testNow()), router("r1"), nil, nil},
		{"other edge router", nil, mustIssue(t, ca, router("r2"), testNow()), router("r1"), ErrWrongPeer, nil},
		{"router for controller", nil, mustIssue(t, ca, router("r1"), testNow()), controller(""), ErrRole, nil},
		{"identity for controller", nil, mustIssue(t, ca, identity("bob"), testNow()), controller(""), ErrRole, nil},
		{"identity for anyone", nil, mustIssue(t, ca, identity("bob"), testNow()), ginnel.Peer{}, ErrRole, nil},
		{"stranger", nil, mustIssue(t, stranger, controller("c1"), testNow()), controller(""), ErrStranger, nil},
		{"renewing", alice.TLS(), mustIssue(t, ca, controller("c1"), testNow()), controller(""), nil, nil},
		{"renewing with a stranger's", mustIssue(t, stranger, identity("alice"), testNow()).TLS(), mustIssue(t, ca, controller("c1"), testNow()), controller(""), nil, ErrStranger},
	} {
		got := shake(t, EnrollClientConfig(test.cert, anchor, test.want, testNow),
			ServerConfig(NewHolder(test.server), testNow, wire.ALPNEdge, wire.ALPNEnroll))
		if test.refuse != nil {
			wantErr(t, test.name, got.serverErr, test.refuse)
			continue
		}
		wantErr(t, test.name, got.clientErr, test.client)
	}
	cfg := EnrollClientConfig(nil, anchor, controller(""), testNow)
	cfg.NextProtos = []string{wire.ALPNCtrl}
	got := shake(t, cfg, ServerConfig(NewHolder(mustIssue(t, ca, controller("c1"), testNow())), testNow, wire.ALPNCtrl))
	wantErr(t, "other protocol", got.clientErr, ErrRole)
}
