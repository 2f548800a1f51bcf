// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"reflect"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/store"
)

func TestWhy(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1")
		b.router("r2")
		b.service("web")
		b.identity("alice", "staff")
		b.identity("gone", "staff")
		b.update(func(tx *store.Tx) error {
			if err := tx.Routers().Put(ginnel.Router{ID: "r2", Disabled: true}); err != nil {
				return err
			}
			return tx.Identities().Put(ginnel.Identity{ID: "gone", Roles: []string{"staff"}, Disabled: true})
		})
		b.policy("staff-web", ginnel.DialPolicy, "#staff", "@web")
		b.policy("hosts", ginnel.BindPolicy, "@bob", "#all")

		edge := []ginnel.PolicyID{everyRouter().ID}
		got, err := b.api.Why(t.Context(), "alice", "web")
		want := api.Why{
			Identity: "alice", Service: "web",
			Dial: api.Reason{Allowed: true, By: []ginnel.PolicyID{"staff-web"}},
			Bind: api.Reason{
				Near:    []api.NearPolicy{{Policy: "hosts", List: "identities"}},
				Missing: "no bind policy joins identity alice and service web",
			},
			EdgeRouters: []api.EdgeReason{
				{Router: "r1", Reason: api.Reason{Allowed: true, By: edge}},
				{Router: "r2", Reason: api.Reason{By: edge, Disabled: []string{"router r2"}, Missing: "router r2 disabled"}},
			},
			Protocols: []ginnel.Protocol{},
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, want)
		}
		got, err = b.api.Why(t.Context(), "gone", "web")
		if err != nil || got.Dial.Allowed || got.Dial.Missing != "identity gone disabled" || got.EdgeRouters[0].Allowed {
			t.Errorf("a disabled identity: %+v, %v", got, err)
		}
		for _, tt := range []struct {
			identity ginnel.IdentityID
			service  ginnel.ServiceID
			want     string
		}{
			{"nobody", "web", "identity nobody: not found"},
			{"alice", "none", "service none: not found"},
			{"nobody", "none", "identity nobody: not found; service none: not found"},
		} {
			if _, err := b.api.Why(t.Context(), tt.identity, tt.service); kindOf(err) != ginnel.KindNotFound || err.Error() != tt.want {
				t.Errorf("%s, %s: got %v, want %s", tt.identity, tt.service, err, tt.want)
			}
		}
	})
}
