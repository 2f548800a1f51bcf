// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

func TestCAIssues(t *testing.T) {
	ca, err := NewCA(testNetwork, testNow())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ca.Cert.NotAfter, testNow().AddDate(10, 0, 0); !got.Equal(want) {
		t.Errorf("CA ends at %v, want %v", got, want)
	}
	for _, p := range []ginnel.Peer{controller("c1"), router("R.1_a-b"), identity("alice")} {
		key := mustKey(t)
		leaf, err := ca.Issue(testNow(), p, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := leaf.URIs[0].String(), "spiffe://acme.example/"+p.String(); got != want {
			t.Errorf("got URI %s, want %s", got, want)
		}
		var names []string
		if p.Role == ginnel.RoleController {
			names = []string{"controller.ginnel.internal"}
		}
		if !slices.Equal(leaf.DNSNames, names) {
			t.Errorf("%v: got DNS names %q, want %q", p, leaf.DNSNames, names)
		}
		if !leaf.NotBefore.Equal(testNow().Add(-time.Hour)) || !leaf.NotAfter.Equal(testNow().Add(90*24*time.Hour)) {
			t.Errorf("%v: valid from %v to %v", p, leaf.NotBefore, leaf.NotAfter)
		}
		if leaf.KeyUsage != x509.KeyUsageDigitalSignature || leaf.IsCA {
			t.Errorf("%v: key usage %v, CA %v", p, leaf.KeyUsage, leaf.IsCA)
		}
		if hash := certKeyHash(leaf); hash != keyHash(t, key.Public()) || len(hash) != 64 {
			t.Errorf("%v: got key hash %s, want %s", p, hash, keyHash(t, key.Public()))
		}
		if peer, err := VerifyLeaf(leaf, ca.Cert, testNow()); err != nil || peer != p {
			t.Errorf("got %v, %v, want %v", peer, err, p)
		}
	}
	last, err := ca.Issue(ca.Cert.NotAfter.Add(-time.Hour), router("r1"), mustKey(t).Public())
	if err != nil || !last.NotAfter.Equal(ca.Cert.NotAfter) {
		t.Errorf("a leaf outlives its CA: %v, %v", last.NotAfter, err)
	}
}

func TestCARefusesToIssue(t *testing.T) {
	ca := mustCA(t, testNetwork)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := mustKey(t)
	for _, test := range []struct {
		name string
		peer ginnel.Peer
		key  *ecdsa.PrivateKey
		at   time.Time
	}{
		{"other curve", router("r1"), p384, testNow()},
		{"no role", ginnel.Peer{ID: "r1"}, good, testNow()},
		{"unknown role", ginnel.Peer{Role: "admin", ID: "r1"}, good, testNow()},
		{"no id", router(""), good, testNow()},
		{"id with a slash", router("a/b"), good, testNow()},
		{"after its end", router("r1"), good, ca.Cert.NotAfter},
		{"before its start", router("r1"), good, ca.Cert.NotBefore.Add(-time.Second)},
	} {
		if _, err := ca.Issue(test.at, test.peer, test.key.Public()); err == nil {
			t.Errorf("%s: issued", test.name)
		}
	}
	for _, network := range []ginnel.NetworkID{"", ".", "a..b", "a.", "a b", "a/b"} {
		if _, err := NewCA(network, testNow()); err == nil {
			t.Errorf("CA for network %q made", network)
		}
	}
}

func TestLoadCA(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := other.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadCA(ca.CertPEM(), key)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Network != testNetwork || !loaded.Cert.Equal(ca.Cert) {
		t.Errorf("got %v", loaded)
	}
	if _, err := VerifyLeaf(mustIssue(t, loaded, router("r1"), testNow()).Leaf, ca.Cert, testNow()); err != nil {
		t.Errorf("leaf of the loaded CA: %v", err)
	}
	leaf := EncodeCertPEM(mustIssue(t, ca, router("r1"), testNow()).Leaf)
	for _, test := range []struct {
		name string
		cert []byte
		key  Secret
	}{
		{"nothing", nil, key},
		{"no key", ca.CertPEM(), nil},
		{"key of another", ca.CertPEM(), otherKey},
		{"swapped", key, ca.CertPEM()},
		{"leaf", leaf, key},
		{"two certificates", append(ca.CertPEM(), other.CertPEM()...), key},
		{"cut off", ca.CertPEM()[:100], key},
	} {
		_, err := LoadCA(test.cert, test.key)
		wantErr(t, test.name, err, ErrMalformed)
	}
}

func TestRenewal(t *testing.T) {
	const day = 24 * time.Hour
	leaf := mustIssue(t, mustCA(t, testNetwork), router("r1"), testNow()).Leaf
	if got, want := RenewAt(leaf), testNow().Add(60*day); !got.Equal(want) {
		t.Errorf("renewed at %v, want %v", got, want)
	}
	for after, want := range map[time.Duration]time.Duration{
		0: time.Hour, 89 * day: time.Hour, 90*day - 10*time.Minute: 30 * time.Second,
		90*day - 5*time.Second: time.Second, 90 * day: 10 * time.Second, 100 * day: 10 * time.Second,
	} {
		if got := RenewPause(leaf, testNow().Add(after), time.Hour); got != want {
			t.Errorf("pause %v after issue: %v, want %v", after, got, want)
		}
	}
	for after, want := range map[time.Duration]bool{
		-2 * time.Hour: false, 0: true, 100 * day: true, 120 * day: true, 120*day + time.Second: false,
	} {
		if got := Renewable(leaf, testNow().Add(after)); got != want {
			t.Errorf("renewable %v after issue: %v, want %v", after, got, want)
		}
	}
}

func TestNewCredentialRefuses(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	c := mustIssue(t, ca, router("r1"), testNow())
	_, err := NewCredential(mustKey(t), c.Leaf, ca.Cert)
	wantErr(t, "other key", err, ErrMalformed)
	_, err = NewCredential(c.Key, c.Leaf, other.Cert)
	wantErr(t, "other CA", err, ErrStranger)
	_, err = NewCredential(c.Key, c.Leaf, c.Leaf)
	wantErr(t, "leaf as CA", err, ErrMalformed)
}

func TestSecretsAreNotPrinted(t *testing.T) {
	c := mustIssue(t, mustCA(t, testNetwork), router("r1"), testNow())
	secret := Secret("hunter2")
	token := Token{Peer: router("r1"), Secret: secret}
	digits := c.Key.D.String() //nolint:staticcheck // the digits that must not be seen
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&out, verb+verb+verb+verb+"\n", secret, c, token, struct{ C *Credential }{c})
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
		log.Info("made", "secret", secret, "credential", c, "token", token)
	}
	text, err := json.Marshal(map[string]any{"s": secret, "c": c, "t": token})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	for _, leak := range []string{"hunter2", "68756e74657232", "68756E74657232", "104 117 110", "aHVudGVy", "0x68", digits} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is in what was printed:\n%s", leak, out.String())
		}
	}
	if !strings.Contains(out.String(), "acme.example/router/r1") {
		t.Errorf("the credential is not named:\n%s", out.String())
	}
}
