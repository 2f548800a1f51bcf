// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"crypto/tls"
	"testing"
	"time"
)

// What resumes a session goes through every router in the ClientHello, so it must
// stay small; whatever cannot be resumed costs a full handshake and nothing else.
func TestSessionsAreSmallAndEnd(t *testing.T) {
	ca := mustCA(t, testNetwork)
	now := testNow()
	clock := func() time.Time { return now }
	alice := NewHolder(mustIssue(t, ca, identity("alice"), now))
	host := NewCircuitServer(NewHolder(mustIssue(t, ca, identity("host"), now)), clock)
	cache := tls.NewLRUClientSessionCache(8)
	dial := func() shaken {
		return shake(t, CircuitClientConfig(alice, clock, "web", cache, gives(testTicket(nil))), host.Config(testTicket(nil)))
	}
	for _, step := range []struct {
		what    string
		before  func()
		resumed bool
	}{
		{"first", func() {}, false},
		{"second", func() {}, true},
		{"the key has changed", func() { now = now.Add(sessionKeyAge) }, true},
		{"the keys have changed twice", func() {
			now = now.Add(sessionKeyAge)
			if _, err := host.sessions.current(); err != nil {
				t.Fatal(err)
			}
			now = now.Add(sessionKeyAge)
		}, false},
		{"again", func() {}, true},
		{"nobody came for long", func() { now = now.Add(2 * sessionKeyAge) }, false},
		{"again", func() {}, true},
		{"leaf forgotten", func() { host.sessions.leaves = memo[[]byte]{most: 1} }, false},
		{"again", func() {}, true},
		{"host started again", func() { host.sessions = newSessions(clock) }, false},
		{"again", func() {}, true},
	} {
		step.before()
		got := dial()
		wantErr(t, step.what+", client", got.clientErr, nil)
		wantErr(t, step.what+", host", got.serverErr, nil)
		if got.client.DidResume != step.resumed || got.server.DidResume != step.resumed {
			t.Errorf("%s: resumed %v and %v, want %v", step.what, got.client.DidResume, got.server.DidResume, step.resumed)
		}
		if got.clientBytes > 512 {
			t.Errorf("%s: the first flight takes %d bytes, at most 512", step.what, got.clientBytes)
		}
	}
}

// Bytes that nobody sealed are no session, of whatever length.
func TestSessionsOfStrangers(t *testing.T) {
	s := newSessions(testNow)
	for n := range 200 {
		sealed := make([]byte, n)
		rand.Read(sealed)
		if state, err := s.unwrap(sealed, tls.ConnectionState{}); state != nil || err != nil {
			t.Fatalf("%d bytes: session %v, error %v", n, state, err)
		}
	}
}
