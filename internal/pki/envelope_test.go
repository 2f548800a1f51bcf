// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func mustSign(t testing.TB, c *Credential, domain string, m proto.Message) *wire.Signed {
	t.Helper()
	s, err := Sign(c, domain, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEnvelope(t *testing.T) {
	ca, stranger := mustCA(t, testNetwork), mustCA(t, testNetwork)
	alice, bob := mustIssue(t, ca, identity("alice"), testNow()), mustIssue(t, ca, identity("bob"), testNow())
	dial := &wire.Dial{Network: string(testNetwork), Service: "web"}
	for _, test := range []struct {
		name   string
		signer *Credential
		domain string // that it is opened for
		change func(*wire.Signed)
		after  time.Duration
		roles  []ginnel.Role
		want   error
	}{
		{name: "as signed"},
		{name: "role asked for", roles: []ginnel.Role{ginnel.RoleRouter, ginnel.RoleIdentity}},
		{name: "other role asked for", roles: []ginnel.Role{ginnel.RoleController}, want: ErrRole},
		{name: "other domain", domain: wire.DomainBind, want: ErrSignature},
		{name: "payload changed", change: func(s *wire.Signed) { s.Payload[0] ^= 1 }, want: ErrSignature},
		{name: "payload longer", change: func(s *wire.Signed) { s.Payload = append(s.Payload, 0) }, want: ErrSignature},
		{name: "signature changed", change: func(s *wire.Signed) { s.Signature[9] ^= 1 }, want: ErrSignature},
		{name: "no signature", change: func(s *wire.Signed) { s.Signature = nil }, want: ErrSignature},
		{name: "leaf of another", change: func(s *wire.Signed) { s.Leaf = bob.Leaf.Raw }, want: ErrSignature},
		{name: "no leaf", change: func(s *wire.Signed) { s.Leaf = nil }, want: ErrMalformed},
		{name: "leaf and more", change: func(s *wire.Signed) { s.Leaf = append(bytes.Clone(s.Leaf), 0) }, want: ErrMalformed},
		{name: "the CA as leaf", change: func(s *wire.Signed) { s.Leaf = ca.Cert.Raw }, want: ErrSignature},
		{name: "stranger", signer: mustIssue(t, stranger, identity("alice"), testNow()), want: ErrStranger},
		{name: "leaf over", after: LeafLife + time.Second, want: ErrExpired},
		{name: "large payload", change: func(s *wire.Signed) { s.Payload = make([]byte, 1<<20) }, want: ErrMalformed},
		{name: "large signature", change: func(s *wire.Signed) { s.Signature = make([]byte, 1<<20) }, want: ErrMalformed},
		{name: "large leaf", change: func(s *wire.Signed) { s.Leaf = make([]byte, 1<<20) }, want: ErrMalformed},
	} {
		if test.signer == nil {
			test.signer = alice
		}
		if test.domain == "" {
			test.domain = wire.DomainDial
		}
		s := mustSign(t, test.signer, wire.DomainDial, dial)
		if test.change != nil {
			test.change(s)
		}
		got := new(wire.Dial)
		signer, err := OpenInto(s, test.domain, ca.Cert, testNow().Add(test.after), got, test.roles...)
		wantErr(t, test.name, err, test.want)
		if err != nil {
			continue
		}
		if signer.Peer != alice.Self || signer.KeyHash != alice.KeyHash() || !signer.Leaf.Equal(alice.Leaf) || !proto.Equal(got, dial) {
			t.Errorf("%s: got %v signed by %v", test.name, got, signer)
		}
	}
	_, _, err := Open(nil, wire.DomainDial, ca.Cert, testNow())
	wantErr(t, "nothing", err, ErrMalformed)
	_, err = Sign(alice, wire.DomainDial, &wire.Dial{Early: make([]byte, maxPayload)})
	wantErr(t, "too large to sign", err, ErrMalformed)
}

func TestEnvelopeOfGarbage(t *testing.T) {
	ca := mustCA(t, testNetwork)
	garbage := new(wire.Done)
	garbage.ProtoReflect().SetUnknown([]byte{0xff})
	s := mustSign(t, mustIssue(t, ca, identity("alice"), testNow()), wire.DomainDial, garbage)
	_, payload, err := Open(s, wire.DomainDial, ca.Cert, testNow())
	if err != nil || !bytes.Equal(payload, []byte{0xff}) {
		t.Errorf("got %x, %v", payload, err)
	}
	signer, err := OpenInto(s, wire.DomainDial, ca.Cert, testNow(), new(wire.Dial))
	wantErr(t, "decoded", err, ErrMalformed)
	if signer.Leaf != nil {
		t.Errorf("got a signer with the error: %v", signer)
	}
}

func FuzzOpen(f *testing.F) {
	ca := mustCA(f, testNetwork)
	good := mustSign(f, mustIssue(f, ca, identity("alice"), testNow()), wire.DomainDial, &wire.Dial{Service: "web"})
	f.Add(good.GetPayload(), good.GetSignature(), good.GetLeaf())
	f.Add([]byte{}, []byte{}, ca.Cert.Raw)
	f.Add([]byte{1}, []byte{0x30}, []byte{0x30, 0x82})
	f.Fuzz(func(t *testing.T, payload, signature, leaf []byte) {
		signed := &wire.Signed{Payload: payload, Signature: signature, Leaf: leaf}
		signer, _, err := Open(signed, wire.DomainDial, ca.Cert, testNow())
		if err != nil {
			return
		}
		// Nobody but alice has a key, and she signed one payload.
		if signer.Peer != identity("alice") || !bytes.Equal(payload, good.GetPayload()) {
			t.Errorf("%v signed %x", signer.Peer, payload)
		}
	})
}

func TestTicketChecks(t *testing.T) {
	has := func(id ginnel.TerminatorID) bool { return id == "t1" }
	for _, test := range []struct {
		name   string
		change func(*wire.Ticket)
		client error
		peer   error
	}{
		{"as issued", nil, nil, nil},
		{"network", func(t *wire.Ticket) { t.Network = "other" }, ErrTicket, ErrTicket},
		{"client", func(t *wire.Ticket) { t.Client = "bob" }, ErrTicket, nil},
		{"no client", func(t *wire.Ticket) { t.Client = "" }, ErrTicket, ErrTicket},
		{"service", func(t *wire.Ticket) { t.Service = "db" }, ErrTicket, nil},
		{"dial", func(t *wire.Ticket) { t.DialHash = DialHash([]byte("other")) }, ErrTicket, nil},
		{"no dial", func(t *wire.Ticket) { t.DialHash = nil }, ErrTicket, nil},
		{"no circuit", func(t *wire.Ticket) { t.Circuit = "" }, ErrTicket, ErrTicket},
		{"peer", func(t *wire.Ticket) { t.Peer = "host2" }, nil, ErrTicket},
		{"peer's role", func(t *wire.Ticket) { t.PeerRole = "router" }, nil, ErrTicket},
		{"controller as peer", func(t *wire.Ticket) { t.PeerRole = "controller" }, ErrTicket, ErrTicket},
		{"no peer", func(t *wire.Ticket) { t.Peer = "" }, ErrTicket, ErrTicket},
		{"terminator", func(t *wire.Ticket) { t.Terminator = "t2" }, nil, ErrTicket},
	} {
		ticket := testTicket(test.change)
		err := CheckTicketForClient(ticket, testNetwork, "alice", "web", DialHash([]byte("dial")))
		wantErr(t, test.name+" at the client", err, test.client)
		wantErr(t, test.name+" at the peer", CheckTicketForPeer(ticket, testNetwork, identity("host"), has), test.peer)
	}
}

func TestTicketSigner(t *testing.T) {
	ca := mustCA(t, testNetwork)
	c1 := mustIssue(t, ca, controller("c1"), testNow())
	open := func(s *wire.Signed, at time.Time) error { _, err := OpenTicket(s, ca.Cert, at); return err }
	reopen := func(s *wire.Signed) error { _, err := ReopenTicket(s, ca.Cert); return err }
	good, err := SignTicket(c1, testTicket(func(t *wire.Ticket) { t.Version = 0 }))
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, "good", open(good, testNow()), nil)
	wantErr(t, "controller's leaf over", open(good, testNow().Add(LeafLife+time.Hour)), ErrExpired)
	wantErr(t, "good, reopened", reopen(good), nil)
	for _, p := range []ginnel.Peer{router("c1"), identity("c1")} {
		bad := mustSign(t, mustIssue(t, ca, p, testNow()), wire.DomainTicket, testTicket(nil))
		wantErr(t, p.String(), open(bad, testNow()), ErrRole)
		wantErr(t, p.String()+", reopened", reopen(bad), ErrRole)
	}
	late := mustSign(t, c1, wire.DomainTicket, testTicket(func(t *wire.Ticket) { t.Issued = testNow().Add(LeafLife + time.Hour).UnixNano() }))
	wantErr(t, "issued after the leaf's end", reopen(late), ErrExpired)
	newer := mustSign(t, c1, wire.DomainTicket, testTicket(func(t *wire.Ticket) { t.Version = ticketVersion + 1 }))
	wantErr(t, "version", open(newer, testNow()), ErrMalformed)
	wantErr(t, "large", reopen(&wire.Signed{Payload: make([]byte, 1<<20)}), ErrMalformed)
	wantErr(t, "garbage", reopen(&wire.Signed{Payload: []byte{0xff}}), ErrMalformed)
}

// A controller's own connection stands for the signatures of its own key, after a
// renewal too, and for nobody else's.
func TestTicketOverItsControllersConnection(t *testing.T) {
	ca, stranger := mustCA(t, testNetwork), mustCA(t, testNetwork)
	key := mustKey(t)
	c1 := mustReissue(t, ca, controller("c1"), key, testNow())
	renewed := mustReissue(t, ca, controller("c1"), key, testNow())
	unsigned := func(c *Credential) *wire.Signed {
		s := mustSign(t, c, wire.DomainTicket, testTicket(nil))
		s.Signature = []byte("none")
		return s
	}
	other := mustIssue(t, ca, controller("c2"), testNow())
	for _, test := range []struct {
		name   string
		ticket *wire.Signed
		by     *x509.Certificate
		want   error
	}{
		{"its own", unsigned(c1), c1.Leaf, nil},
		{"signed after its renewal", unsigned(renewed), c1.Leaf, nil},
		{"from nobody in particular", unsigned(c1), nil, ErrSignature},
		{"another controller's", unsigned(other), c1.Leaf, ErrSignature},
		{"another controller's, signed", mustSign(t, other, wire.DomainTicket, testTicket(nil)), c1.Leaf, nil},
		{"a router's of the same key", unsigned(mustReissue(t, ca, router("c1"), key, testNow())), c1.Leaf, ErrRole},
		{"another CA's leaf of the same key", unsigned(mustReissue(t, stranger, controller("c1"), key, testNow())), c1.Leaf, ErrStranger},
	} {
		_, err := OpenTicketFrom(test.ticket, ca.Cert, testNow(), test.by)
		wantErr(t, test.name, err, test.want)
	}
}

func BenchmarkOpen(b *testing.B) {
	ca := mustCA(b, testNetwork)
	s := mustSign(b, mustIssue(b, ca, identity("alice"), testNow()), wire.DomainDial, &wire.Dial{Service: "web", Early: make([]byte, 512)})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Open(s, wire.DomainDial, ca.Cert, testNow(), ginnel.RoleIdentity); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	c := mustIssue(b, mustCA(b, testNetwork), identity("alice"), testNow())
	dial := &wire.Dial{Service: "web", Early: make([]byte, 512)}
	for b.Loop() {
		mustSign(b, c, wire.DomainDial, dial)
	}
}

func BenchmarkVerifyLeaf(b *testing.B) {
	ca := mustCA(b, testNetwork)
	leaf, err := x509.ParseCertificate(mustIssue(b, ca, identity("alice"), testNow()).Leaf.Raw)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := VerifyLeaf(leaf, ca.Cert, testNow()); err != nil {
			b.Fatal(err)
		}
	}
}
