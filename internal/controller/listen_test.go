// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
)

// client gives a client of the API over the controller's port.
func (b *testbed) client(c *pki.Credential) *api.Client {
	return api.NewClient(b.web(c), "https://c1:1")
}

// web is client, for who speaks HTTP.
func (b *testbed) web(c *pki.Credential) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			cfg := pki.ClientConfig(pki.NewHolder(c), time.Now, ginnel.Peer{Role: ginnel.RoleController}, alpnHTTP1)
			return transport.Dial(ctx, b.net.Host("admin"), "c1:1", cfg)
		},
	}}
}

// The API is served on the port to administrators only.
func TestAPIOverTLS(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		if b.c.Addr().String() != "c1:1" {
			t.Errorf("address %s", b.c.Addr())
		}
		boss, alice := b.identity("boss"), b.identity("alice")
		b.update(func(tx *store.Tx) error {
			return tx.Identities().Put(ginnel.Identity{ID: "boss", Admin: true, Key: boss.KeyHash()})
		})
		admin, nobody := b.client(boss), b.client(alice)
		defer admin.Close()
		defer nobody.Close()
		if s, err := admin.Status(t.Context()); err != nil || s.Controller != "c1" {
			t.Errorf("administrator: %+v, %v", s, err)
		}
		if _, err := nobody.Status(t.Context()); kindOf(err) != ginnel.KindNotPermitted {
			t.Errorf("somebody else: %v", err)
		}
		b.must(b.api.Identities.Update(t.Context(), "alice", api.IdentityCreate{Identity: ginnel.Identity{ReadOnly: true}}))
		if _, err := nobody.Status(t.Context()); err != nil {
			t.Errorf("who may only read: %v", err)
		}
		if _, err := nobody.Services().Create(t.Context(), ginnel.Service{ID: "web"}); kindOf(err) != ginnel.KindNotPermitted || err.Error() != "identity alice may only read" {
			t.Errorf("who may only read writes: %v", err)
		}
		if _, err := admin.Services().Create(t.Context(), ginnel.Service{ID: "web"}); err != nil {
			t.Errorf("administrator writes: %v", err)
		}
		// On the connection that is up, too.
		b.must(b.api.Identities.Update(t.Context(), "boss", api.IdentityCreate{Identity: ginnel.Identity{Admin: false}}))
		if _, err := admin.Status(t.Context()); kindOf(err) != ginnel.KindNotPermitted {
			t.Errorf("no longer an administrator: %v", err)
		}
		// Tokens of routers that dial name the port.
		token := b.token(b.api.Routers.Create(t.Context(), api.RouterCreate{Router: ginnel.Router{ID: "r1"}}))
		if len(token.Addresses) != 1 || token.Addresses[0] != "tls:c1:1" {
			t.Errorf("addresses in the token: %v", token.Addresses)
		}
	})
}

func TestPortInUse(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		second, err := New(Options{
			Config: b.cfg, Holder: b.holder, CA: b.ca, Store: b.store, Network: b.net.Host("c1"), Log: b.c.log,
		})
		b.must(err)
		if err := second.Run(t.Context()); err == nil {
			t.Error("two listen on one port")
		}
	})
}

// Policies are compiled anew exactly when they have changed.
func TestRulesFollowPolicies(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		alice, web := ginnel.Identity{ID: "alice"}, ginnel.Service{ID: "web"}
		allow := func(id ginnel.PolicyID, who string) func(*store.Tx) error {
			return func(tx *store.Tx) error {
				return tx.Policies().Put(ginnel.Policy{ID: id, Kind: ginnel.DialPolicy, Identities: []string{who}, Services: []string{"@web"}})
			}
		}
		drop := func(id ginnel.PolicyID) func(*store.Tx) error {
			return func(tx *store.Tx) error { return tx.Policies().Delete(id) }
		}
		for n, step := range []struct {
			do   func(*store.Tx) error
			want bool
		}{
			{allow("p", "@bob"), false},
			{allow("p", "@alice"), true},
			{allow("q", "@alice"), true},
			{drop("p"), true},
			{func(tx *store.Tx) error { // as many as before, one of them older
				if err := tx.Policies().Delete("q"); err != nil {
					return err
				}
				return allow("r", "@bob")(tx)
			}, false},
		} {
			b.update(step.do)
			r := b.c.rules()
			if got := r.policies.CanDial(alice, web); got != step.want {
				t.Errorf("step %d: %t", n, got)
			}
			b.update(func(tx *store.Tx) error { return tx.Services().Put(ginnel.Service{ID: "web", Attempts: n + 1}) })
			if again := b.c.rules(); again.policies != r.policies || again.Revision() <= r.Revision() {
				t.Errorf("step %d: compiled again, or old", n)
			}
		}
	})
}
