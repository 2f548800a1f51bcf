// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// query signs a request for services.
func (b *testbed) query(c *pki.Credential, change func(*wire.ServiceQuery)) *wire.Message {
	b.Helper()
	q := &wire.ServiceQuery{Network: "acme", Router: "r1", Audience: &wire.Audience{
		Controller: "c1", Boot: string(b.c.Boot()), Clock: time.Now().UnixNano(), Nonce: make([]byte, nonceSize),
	}}
	b.queries++
	q.Audience.Nonce[0] = b.queries
	if change != nil {
		change(q)
	}
	signed, err := pki.Sign(c, wire.DomainServices, q)
	b.must(err)
	return &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: &wire.ServicesRequest{Query: signed, Identity: c.Self.ID, Edge: 1}}}
}

// lists gives the service lists that came for an edge connection.
func (r *testRouter) lists() []*wire.ServiceList {
	var all []*wire.ServiceList
	for _, s := range take(r, (*wire.Message).GetServices) {
		list := new(wire.ServiceList)
		_, err := pki.OpenInto(s.GetPage(), wire.DomainServiceList, r.b.ca.Cert, time.Now(), list, ginnel.RoleController)
		r.b.must(err)
		all = append(all, list)
	}
	return all
}

func TestServices(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		r.hello = &wire.RouterHello{EdgeAddress: "tls:r1:443"}
		b.must(r.dial())
		alice := b.identity("alice")
		b.service("web")
		b.service("secret")
		_, err := r.request(b.query(alice, nil))
		b.must(err)
		if got := r.lists(); len(got) != 1 || len(got[0].GetServices()) != 0 || got[0].GetRouters()[0].GetAddress() != "tls:r1:443" {
			t.Fatalf("at first: %v", got)
		}
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		b.wait(time.Second)
		got := r.lists()
		if len(got) != 1 || got[0].GetSequence() != 2 || len(got[0].GetServices()) != 1 || !got[0].GetServices()[0].GetCanDial() || got[0].GetServices()[0].GetCanBind() {
			t.Fatalf("with a policy: %v", got)
		}
		// What does not concern alice is not sent to her.
		b.policy("other", ginnel.DialPolicy, "@bob", "@secret")
		b.wait(time.Second)
		if got := r.lists(); len(got) != 0 {
			t.Errorf("sent again: %v", got)
		}
		r.report(&wire.State{Edges: []*wire.EdgeState{{Connection: 1, Removed: true}}})
		b.must(b.api.Policies.Delete(t.Context(), "dial"))
		b.wait(time.Second)
		if got := r.lists(); len(got) != 0 {
			t.Errorf("sent to an edge connection that is gone: %v", got)
		}
	})
}

// Those of whom the policies say the same are told the same, each in its own name;
// what says something of one of them makes it another's list.
func TestAlikeIdentitiesAreToldAlike(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		r.hello = &wire.RouterHello{EdgeAddress: "tls:r1:443"}
		b.must(r.dial())
		b.service("web")
		b.service("db")
		names := []string{"a1", "a2", "a3", "b1"}
		for i, name := range names {
			role := name[:1]
			m := b.query(b.identity(name, role), nil)
			m.GetServicesRequest().Edge = uint64(i + 1)
			_, err := r.request(m)
			b.must(err)
		}
		b.wait(time.Second)
		r.lists()
		told := func(what string, want map[string][]string) {
			t.Helper()
			b.wait(time.Second)
			got := map[string][]string{}
			for _, l := range r.lists() {
				list := []string{}
				for _, s := range l.GetServices() {
					list = append(list, s.GetId())
				}
				if _, twice := got[l.GetIdentity()]; twice || len(l.GetNonce()) != nonceSize {
					t.Errorf("%s: %s is told twice, or not in its own name", what, l.GetIdentity())
				}
				got[l.GetIdentity()] = list
			}
			if !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%s: told %v, want %v", what, got, want)
			}
		}
		b.policy("as", ginnel.DialPolicy, "#a", "@web")
		told("a policy of a role", map[string][]string{"a1": {"web"}, "a2": {"web"}, "a3": {"web"}})
		b.policy("one", ginnel.DialPolicy, "@a2", "@db")
		told("a policy of one", map[string][]string{"a2": {"db", "web"}})
		b.must(b.api.Policies.Delete(t.Context(), "as"))
		told("the first is gone", map[string][]string{"a1": {}, "a2": {"db"}, "a3": {}})
		b.policy("all", ginnel.BindPolicy, "#all", "@db")
		told("one of all", map[string][]string{"a1": {"db"}, "a2": {"db"}, "a3": {"db"}, "b1": {"db"}})
	})
}

// A signed request counts once, for one life of one controller, now, over the
// router it names, for an identity that is enabled and has that key.
func TestSignedRequests(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		alice := b.identity("alice")
		for _, tt := range []struct {
			name     string
			signer   *pki.Credential
			change   func(*wire.ServiceQuery)
			audience bool // told what to sign for
		}{
			{"other controller", alice, func(q *wire.ServiceQuery) { q.Audience.Controller = "c2" }, true},
			{"other life", alice, func(q *wire.ServiceQuery) { q.Audience.Boot = "before" }, true},
			{"old", alice, func(q *wire.ServiceQuery) { q.Audience.Clock -= int64(clockWindow + time.Second) }, true},
			{"of the future", alice, func(q *wire.ServiceQuery) { q.Audience.Clock += int64(clockWindow + time.Second) }, true},
			{"no nonce", alice, func(q *wire.ServiceQuery) { q.Audience.Nonce = nil }, false},
			{"other router", alice, func(q *wire.ServiceQuery) { q.Router = "r2" }, false},
			{"other network", alice, func(q *wire.ServiceQuery) { q.Network = "x" }, false},
			{"a router", r.holder.Load(), nil, false},
		} {
			m := b.query(tt.signer, tt.change)
			q := new(wire.ServiceQuery)
			_, refused := b.c.verifyRequest(m.GetServicesRequest().GetQuery(), wire.DomainServices, "r1", q)
			if ginnel.Code(refused.GetCode()) != ginnel.NotAuthenticated || (refused.GetAudience() != nil) != tt.audience {
				t.Errorf("%s: %v", tt.name, refused)
			}
			if tt.audience && refused.GetAudience().GetBoot() != string(b.c.Boot()) {
				t.Errorf("%s: audience %v", tt.name, refused.GetAudience())
			}
		}
		for name, signer := range map[string]*pki.Credential{
			"other key": b.credential(ginnel.RoleIdentity, "alice"), "unknown": b.credential(ginnel.RoleIdentity, "bob"),
		} {
			if _, err := r.request(b.query(signer, nil)); !isCode(err, ginnel.NotAuthenticated) {
				t.Errorf("%s: %v", name, err)
			}
		}
		m := b.query(alice, nil)
		for n, want := range []bool{true, false} {
			_, err := r.request(m)
			if (err == nil) != want {
				t.Errorf("request %d: %v", n+1, err)
			}
		}
		b.wait(3 * clockWindow)
		if _, err := r.request(m); err == nil {
			t.Error("replayed later")
		}
		b.update(func(tx *store.Tx) error {
			return tx.Identities().Put(ginnel.Identity{ID: "alice", Disabled: true, Key: alice.KeyHash()})
		})
		if _, err := r.request(b.query(alice, nil)); err == nil {
			t.Error("disabled and served")
		}
	})
}
