// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func testTicket(change func(*wire.Ticket)) *wire.Ticket {
	t := &wire.Ticket{
		Version: ticketVersion, Network: string(testNetwork), Circuit: "k1", Service: "web",
		Client: "alice", PeerRole: "identity", Peer: "host", Terminator: "t1", Router: "r2",
		DialHash: DialHash([]byte("dial")), Revision: 7, Issued: testNow().UnixNano(),
	}
	if change != nil {
		change(t)
	}
	return t
}

func gives(t *wire.Ticket) func() (*wire.Ticket, error) {
	return func() (*wire.Ticket, error) { return t, nil }
}

// A router on the way that answers itself, or a host that is shown another
// client than the ticket's, fails the end-to-end handshake.
func TestL107_LeafIsNotTheTickets(t *testing.T) {
	ca := mustCA(t, testNetwork)
	stranger := mustCA(t, testNetwork)
	issue := func(ca *CA, p ginnel.Peer) *Credential { return mustIssue(t, ca, p, testNow()) }
	for _, test := range []struct {
		name           string
		client, server *Credential
		ticket         *wire.Ticket
		clientErr      error
		serverErr      error
	}{
		{"as the ticket says", issue(ca, identity("alice")), issue(ca, identity("host")), testTicket(nil), nil, nil},
		{
			"router terminates", issue(ca, identity("alice")), issue(ca, router("r2")),
			testTicket(func(t *wire.Ticket) { t.PeerRole, t.Peer = "router", "r2" }), nil, nil,
		},
		{"ingress router answers", issue(ca, identity("alice")), issue(ca, router("r1")), testTicket(nil), ErrWrongPeer, nil},
		{"router of the host's name answers", issue(ca, identity("alice")), issue(ca, router("host")), testTicket(nil), ErrWrongPeer, nil},
		{"other host answers", issue(ca, identity("alice")), issue(ca, identity("host2")), testTicket(nil), ErrWrongPeer, nil},
		{"stranger answers", issue(ca, identity("alice")), issue(stranger, identity("host")), testTicket(nil), ErrStranger, nil},
		{"other client", issue(ca, identity("bob")), issue(ca, identity("host")), testTicket(nil), nil, ErrWrongPeer},
		{"router as client", issue(ca, router("alice")), issue(ca, identity("host")), testTicket(nil), nil, ErrWrongPeer},
		{"stranger as client", issue(stranger, identity("alice")), issue(ca, identity("host")), testTicket(nil), ErrStranger, nil},
		{"ticket without peer", issue(ca, identity("alice")), issue(ca, identity("host")), testTicket(func(t *wire.Ticket) { t.Peer = "" }), ErrTicket, nil},
		{"ticket without client", issue(ca, identity("alice")), issue(ca, identity("host")), testTicket(func(t *wire.Ticket) { t.Client = "" }), nil, ErrTicket},
	} {
		got := shake(t,
			CircuitClientConfig(NewHolder(test.client), testNow, "web", nil, gives(test.ticket)),
			NewCircuitServer(NewHolder(test.server), testNow).Config(test.ticket))
		if test.serverErr != nil {
			wantErr(t, test.name, got.serverErr, test.serverErr)
			continue
		}
		wantErr(t, test.name, got.clientErr, test.clientErr)
	}
	none := errors.New("no ticket")
	got := shake(t,
		CircuitClientConfig(NewHolder(issue(ca, identity("alice"))), testNow, "web", nil, func() (*wire.Ticket, error) { return nil, none }),
		NewCircuitServer(NewHolder(issue(ca, identity("host"))), testNow).Config(testTicket(nil)))
	wantErr(t, "no ticket", got.clientErr, none)
}

// Sessions resume with the same host over later circuits, and the ticket is
// checked on resumed sessions as on others.
func TestL107_ResumedSession(t *testing.T) {
	ca := mustCA(t, testNetwork)
	alice := NewHolder(mustIssue(t, ca, identity("alice"), testNow()))
	host := NewCircuitServer(NewHolder(mustIssue(t, ca, identity("host"), testNow())), testNow)
	other := NewCircuitServer(NewHolder(mustIssue(t, ca, identity("host2"), testNow())), testNow)
	cache := tls.NewLRUClientSessionCache(8)
	toHost := testTicket(nil)
	toOther := testTicket(func(t *wire.Ticket) { t.Peer = "host2" })
	dial := func(service ginnel.ServiceID, clients, hosts *wire.Ticket, server *CircuitServer) shaken {
		return shake(t, CircuitClientConfig(alice, testNow, service, cache, gives(clients)), server.Config(hosts))
	}
	expect := func(what string, got shaken, resumed bool) {
		t.Helper()
		wantErr(t, what+" client", got.clientErr, nil)
		wantErr(t, what+" server", got.serverErr, nil)
		if got.client.DidResume != resumed || got.server.DidResume != resumed {
			t.Errorf("%s: resumed %v and %v, want %v", what, got.client.DidResume, got.server.DidResume, resumed)
		}
		if got.clientBytes > wire.MaxEarlyOut || got.serverBytes > wire.MaxEarlyBack {
			t.Errorf("%s: first flights of %d and %d bytes", what, got.clientBytes, got.serverBytes)
		}
	}
	first := dial("web", toHost, toHost, host)
	expect("first", first, false)
	again := dial("web", toHost, toHost, host)
	expect("again", again, true)
	t.Logf("first flights: %d and %d bytes, resumed %d and %d", first.clientBytes, first.serverBytes, again.clientBytes, again.serverBytes)
	expect("other service", dial("db", toHost, toHost, host), false)
	expect("other host", dial("web", toOther, toOther, other), false)
	expect("back", dial("web", toHost, toHost, host), false)

	// The session is that of host, while the ticket names another.
	got := dial("web", toOther, toHost, host)
	wantErr(t, "resumed with a ticket for another peer", got.clientErr, ErrWrongPeer)
	// A session is offered once (RFC 8446, appendix C.4), and that one is spent.
	expect("after a refusal", dial("web", toHost, toHost, host), false)
	// The session is that of alice, while the host's ticket names another client.
	dial("web", toHost, toHost, host)
	got = dial("web", toHost, testTicket(func(t *wire.Ticket) { t.Client = "bob" }), host)
	wantErr(t, "resumed with a ticket for another client", got.serverErr, ErrWrongPeer)
}

// A resumed session ends with the certificates that it stands on.
func TestResumedSessionExpires(t *testing.T) {
	ca := mustCA(t, testNetwork)
	now := testNow()
	clock := func() time.Time { return now }
	aliceKey, hostKey := mustKey(t), mustKey(t)
	alice := NewHolder(mustReissue(t, ca, identity("alice"), aliceKey, now))
	hostHolder := NewHolder(mustReissue(t, ca, identity("host"), hostKey, now))
	host := NewCircuitServer(hostHolder, clock)
	cache := tls.NewLRUClientSessionCache(8)
	dial := func() shaken {
		return shake(t, CircuitClientConfig(alice, clock, "web", cache, gives(testTicket(nil))), host.Config(testTicket(nil)))
	}
	now = now.Add(LeafLife - 24*time.Hour)
	dial()
	if got := dial(); !got.client.DidResume {
		t.Fatalf("not resumed: %v %v", got.clientErr, got.serverErr)
	}
	for _, h := range []*Holder{alice, hostHolder} {
		old := h.Load()
		if err := h.Swap(mustReissue(t, ca, old.Self, old.Key, now)); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(25 * time.Hour)
	got := dial()
	wantErr(t, "client", got.clientErr, nil)
	if got.client.DidResume {
		t.Error("resumed a session of certificates that ended")
	}
}
