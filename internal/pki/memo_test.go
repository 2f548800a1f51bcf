// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel/internal/wire"
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
	m := memo[int]{most: 10}
	for i := range 25 {
		m.add(digest{byte(i)}, i)
		if v, ok := m.get(digest{byte(i)}); !ok || v != i {
			t.Errorf("got %d, %t for %d", v, ok, i)
		}
	}
	if n := len(m.known); n > m.most {
		t.Errorf("%d are remembered, at most %d may be", n, m.most)
	}
}

// TestTicketsAreRemembered opens the same bytes twice, and then such that differ
// from them in each part.
func TestTicketsAreRemembered(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	c := mustIssue(t, ca, controller("c1"), testNow())
	signed, err := SignTicket(c, &wire.Ticket{Circuit: "x", Issued: testNow().UnixNano()})
	if err != nil {
		t.Fatal(err)
	}
	again := func(change func(*wire.Signed)) error {
		s := proto.CloneOf(signed)
		change(s)
		_, err := OpenTicket(s, ca.Cert, testNow())
		return err
	}
	wantErr(t, "the same", again(func(*wire.Signed) {}), nil)
	wantErr(t, "another payload", again(func(s *wire.Signed) { s.Payload[len(s.Payload)-1] ^= 1 }), ErrSignature)
	wantErr(t, "another signature", again(func(s *wire.Signed) { s.Signature[len(s.Signature)-1] ^= 1 }), ErrSignature)
	wantErr(t, "another leaf", again(func(s *wire.Signed) { s.Leaf = mustIssue(t, ca, controller("c2"), testNow()).Leaf.Raw }), ErrSignature)
	_, err = OpenTicket(signed, other.Cert, testNow())
	wantErr(t, "another CA", err, ErrStranger)
	_, err = OpenTicket(signed, ca.Cert, c.Leaf.NotAfter.Add(time.Second))
	wantErr(t, "too late", err, ErrExpired)
	_, _, err = Open(signed, wire.DomainDial, ca.Cert, testNow())
	wantErr(t, "another domain", err, ErrSignature)
	if _, ok := tickets.get(signatureKey(chainKey(signed.Leaf, ca.Cert), envelopeDigest(wire.DomainTicket, signed.Payload), signed.Signature)); !ok {
		t.Error("a ticket that was signed here is not remembered")
	}
}

func TestOnlyValidChainsAreRemembered(t *testing.T) {
	ca, other := mustCA(t, testNetwork), mustCA(t, testNetwork)
	leaf := mustIssue(t, other, router("r1"), testNow()).Leaf
	_, err := VerifyLeaf(leaf, ca.Cert, testNow())
	wantErr(t, "another CA", err, ErrStranger)
	if _, ok := chains.get(chainKey(leaf.Raw, ca.Cert)); ok {
		t.Error("a leaf of another CA is remembered")
	}
}
