// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// ticket gives one end of a circuit as a router reports it.
func (b *testbed) endpoint(circuit string, host bool, change func(*wire.Ticket)) *wire.EndpointState {
	b.Helper()
	ticket := &wire.Ticket{
		Network: "acme", Circuit: circuit, Service: "web", Client: "alice", PeerRole: string(ginnel.RoleIdentity), Peer: "host",
		Terminator: "t", Router: "r2", Revision: int64(b.store.View().Revision()), Issued: time.Now().UnixNano(),
	}
	if change != nil {
		change(ticket)
	}
	signed, err := pki.SignTicket(b.holder.Load(), ticket)
	b.must(err)
	return &wire.EndpointState{Circuit: circuit, Generation: 1, Host: host, Ticket: signed, Path: []string{"r1", "r2"}, Links: []string{"r1/r2/0"}}
}

// inRevocations is a testbed where alice may dial web, which host hosts.
func inRevocations(t *testing.T, test func(t *testing.T, b *testbed, r *testRouter, alice *pki.Credential)) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		b.service("web")
		alice, host := b.identity("alice"), b.identity("host")
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		b.policy("bind", ginnel.BindPolicy, "@host", "@web")
		r.report(&wire.State{
			Terminators: []*wire.TerminatorState{b.bind(host, nil)},
			Edges:       []*wire.EdgeState{edgeState(alice, 1), edgeState(host, 2)},
			Endpoints:   []*wire.EndpointState{b.endpoint("c1", false, nil), b.endpoint("c1", true, nil)},
		})
		b.wait(3 * time.Second)
		if got := take(r, (*wire.Message).GetRevoke); len(got) != 0 {
			t.Fatalf("revoked though all is allowed: %v", got)
		}
		test(t, b, r, alice)
	})
}

func edgeState(c *pki.Credential, connection uint64) *wire.EdgeState {
	key := sha256.Sum256(c.Leaf.RawSubjectPublicKeyInfo)
	return &wire.EdgeState{Identity: c.Self.ID, Process: "p", Connection: connection, Key: key[:]}
}

// wantRevoked waits 5 s for these revocations, in any order, and no others.
func wantRevoked(t *testing.T, b *testbed, r *testRouter, want ...*wire.Revoke) {
	t.Helper()
	b.wait(4 * time.Second)
	got := take(r, (*wire.Message).GetRevoke)
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g *wire.Revoke) bool { return proto.Equal(g, w) }) {
			t.Errorf("not revoked: %v", w)
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(want, func(w *wire.Revoke) bool { return proto.Equal(g, w) }) {
			t.Errorf("revoked: %v", g)
		}
	}
}

func TestL105_IdentityDeleted(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
		r2 := b.router("r2")
		b.must(r2.dial())
		b.must(b.api.Identities.Delete(t.Context(), "alice"))
		everything := &wire.Revoke{Identity: "alice"}
		wantRevoked(t, b, r2, everything)
		wantRevoked(t, b, r, everything,
			&wire.Revoke{Identity: "alice", Service: "web"}, &wire.Revoke{Identity: "alice", Service: "web", Circuit: "c1"})
	})
}

// What a policy alone allowed ends in 5 s (the controller's half of L45).
func TestL45_PolicyRemoved(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
		b.must(b.api.Policies.Delete(t.Context(), "dial"))
		wantRevoked(t, b, r, &wire.Revoke{Identity: "alice", Service: "web"}, &wire.Revoke{Identity: "alice", Service: "web", Circuit: "c1"})
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		wantRevoked(t, b, r)
		b.must(b.api.Policies.Delete(t.Context(), "bind"))
		wantRevoked(t, b, r, &wire.Revoke{Identity: "host", Service: "web", Bind: true}, &wire.Revoke{Identity: "alice", Service: "web", Circuit: "c1"})
	})
}

// Rows are judged when they are reported, too: a router that was away hears it.
func TestRevokedWhenReported(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, alice *pki.Credential) {
		old := b.credential(ginnel.RoleIdentity, "alice")
		r.report(&wire.State{Edges: []*wire.EdgeState{edgeState(alice, 3), edgeState(old, 4)}})
		wantRevoked(t, b, r, &wire.Revoke{Identity: "alice"})
		r.report(&wire.State{Edges: []*wire.EdgeState{{Connection: 4, Removed: true}}})
		wantRevoked(t, b, r)
	})
}

// A controller that does not hear of its store refuses nothing.
func TestStaleCacheRevokesNothing(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
		b.backend.SetDown(true)
		b.wait(10 * time.Second)
		stranger := b.credential(ginnel.RoleIdentity, "unknown")
		r.report(&wire.State{Edges: []*wire.EdgeState{edgeState(stranger, 9)}})
		wantRevoked(t, b, r)
		if got := b.c.refusal(ginnel.Errorf(ginnel.NotAuthorized, "x")); got.Code != ginnel.Busy {
			t.Errorf("refusal out of an old cache: %v", got)
		}
		b.backend.SetDown(false)
		wantRevoked(t, b, r, &wire.Revoke{Identity: "unknown"})
	})
}

func TestCircuitsShown(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
		list, err := b.api.Circuits.ListCircuits(t.Context())
		b.must(err)
		if len(list) != 1 || list[0].ID != "c1" || list[0].Client != "alice" || list[0].Service != "web" || len(list[0].Path) != 2 {
			t.Errorf("circuits: %+v", list)
		}
		b.must(b.api.Circuits.DeleteCircuit(t.Context(), "c1"))
		if got := take(r, (*wire.Message).GetRevoke); len(got) != 2 || got[0].GetCircuit() != "c1" {
			t.Errorf("revoked: %v", got)
		}
		forged := b.endpoint("c2", false, nil)
		forged.Ticket.Signature[5] ^= 1
		r.report(&wire.State{Endpoints: []*wire.EndpointState{
			{Circuit: "c1", Removed: true},
			{Circuit: "c1", Host: true, Removed: true},
			forged,
			b.endpoint("c3", false, func(t *wire.Ticket) { t.Circuit = "c4" }),
		}})
		if n := b.c.fabric.circuitCount(); n != 0 {
			t.Errorf("%d circuits left", n)
		}
	})
}
