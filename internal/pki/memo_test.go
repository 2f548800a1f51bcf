// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

// What was verified once is judged by its time and its issuer each time.
func TestARememberedLeafIsNotTrustedForMore(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	leaf := mustIssue(t, ca, router("r1"), testNow()).Leaf
	forged := slices.Clone(leaf.Raw)
	forged[len(forged)-1] ^= 1 // in the signature
	changed, err := x509.ParseCertificate(forged)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := VerifyLeaf(leaf, ca.Cert, testNow())
		wantErr(t, "as issued", err, nil)
		_, err = VerifyLeaf(leaf, ca.Cert, leaf.NotAfter.Add(time.Second))
		wantErr(t, "too late", err, ErrExpired)
		_, err = VerifyLeaf(leaf, ca.Cert, leaf.NotBefore.Add(-time.Second))
		wantErr(t, "too early", err, ErrExpired)
		_, err = VerifyLeaf(leaf, ca.Cert, ca.Cert.NotAfter.Add(time.Second))
		wantErr(t, "after the CA's end", err, ErrExpired)
		_, err = VerifyLeaf(leaf, other.Cert, testNow())
		wantErr(t, "another CA", err, ErrStranger)
		_, err = VerifyLeaf(changed, ca.Cert, testNow())
		wantErr(t, "another signature", err, ErrStranger)
	}
}

func TestMemoIsBounded(t *testing.T) {
	var m memo
	ca := mustCA(t, testNetwork).Cert
	for i := range maxRemembered + 10 {
		m.add(&x509.Certificate{Raw: []byte{byte(i), byte(i >> 8)}}, ca)
	}
	if n := len(m.known); n > maxRemembered {
		t.Errorf("%d chains are remembered, at most %d may be", n, maxRemembered)
	}
}

func TestOnlyValidChainsAreRemembered(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	leaf := mustIssue(t, other, router("r1"), testNow()).Leaf
	_, err := VerifyLeaf(leaf, ca.Cert, testNow())
	wantErr(t, "another CA", err, ErrStranger)
	if chains.has(leaf, ca.Cert, testNow()) {
		t.Error("a leaf of another CA is remembered")
	}
}
