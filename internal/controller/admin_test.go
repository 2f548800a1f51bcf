// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// kindOf gives what kind of error the API tells.
func kindOf(err error) ginnel.Kind {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Kind
	}
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		return d.Code.Kind()
	}
	if err == nil {
		return ginnel.KindOK
	}
	return ginnel.KindInternal
}

func TestAdminRefuses(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		ctx := t.Context()
		b.router("r1")
		b.router("r2")
		b.service("web")
		router := func(change func(*api.RouterCreate)) error {
			in := api.RouterCreate{Router: ginnel.Router{ID: "new"}}
			change(&in)
			_, err := b.api.Routers.Create(ctx, in)
			return err
		}
		service := func(change func(*ginnel.Service)) error {
			in := ginnel.Service{ID: "new", Intercept: &ginnel.Intercept{Addresses: []string{"a.internal"}, Ports: []string{"80"}}}
			change(&in)
			_, err := b.api.Services.Create(ctx, in)
			return err
		}
		terminator := func(change func(*ginnel.Terminator)) error {
			in := ginnel.Terminator{Service: "web", Router: "r1", Address: "tcp:127.0.0.1:80"}
			change(&in)
			_, err := b.api.Terminators.Create(ctx, in)
			return err
		}
		policy := func(p ginnel.Policy) error { _, err := b.api.Policies.Create(ctx, p); return err }
		link := func(l ginnel.LinkSpec) error { _, err := b.api.Links.Create(ctx, l); return err }
		identity := func(i api.IdentityCreate) error { _, err := b.api.Identities.Create(ctx, i); return err }

		for _, tt := range []struct {
			name string
			err  error
			want ginnel.Kind
		}{
			{"router without name", router(func(r *api.RouterCreate) { r.ID = "" }), ginnel.KindInvalid},
			{"router with a slash", router(func(r *api.RouterCreate) { r.ID = "a/b" }), ginnel.KindInvalid},
			{"router there already", router(func(r *api.RouterCreate) { r.ID = "r1" }), ginnel.KindConflict},
			{"router at no address", router(func(r *api.RouterCreate) { r.CtrlAddresses = []string{"r1:80"} }), ginnel.KindInvalid},
			{"router with role all", router(func(r *api.RouterCreate) { r.Roles = []string{"all"} }), ginnel.KindInvalid},
			{"router of negative cost", router(func(r *api.RouterCreate) { r.Cost = -1 }), ginnel.KindInvalid},
			{"token for ever", router(func(r *api.RouterCreate) { r.TokenLife = ginnel.Duration(10 * maxTokenLife) }), ginnel.KindInvalid},
			{"token of the past", router(func(r *api.RouterCreate) { r.TokenLife = ginnel.Duration(-time.Hour) }), ginnel.KindInvalid},
			{"strategy", service(func(s *ginnel.Service) { s.Strategy = "best" }), ginnel.KindInvalid},
			{"attempts", service(func(s *ginnel.Service) { s.Attempts = 99 }), ginnel.KindInvalid},
			{"intercept of nothing", service(func(s *ginnel.Service) { s.Intercept.Addresses = nil }), ginnel.KindInvalid},
			{"intercept without port", service(func(s *ginnel.Service) { s.Intercept.Ports = nil }), ginnel.KindInvalid},
			{"port 0", service(func(s *ginnel.Service) { s.Intercept.Ports = []string{"0"} }), ginnel.KindInvalid},
			{"ports backwards", service(func(s *ginnel.Service) { s.Intercept.Ports = []string{"90-80"} }), ginnel.KindInvalid},
			{"a wrong address", service(func(s *ginnel.Service) { s.Intercept.Addresses = []string{"a b"} }), ginnel.KindInvalid},
			{"a star within", service(func(s *ginnel.Service) { s.Intercept.Addresses = []string{"a.*.b"} }), ginnel.KindInvalid},
			{"protocol", service(func(s *ginnel.Service) { s.Intercept.Protocols = []string{"icmp"} }), ginnel.KindInvalid},
			{"huge intercept", service(func(s *ginnel.Service) { s.Intercept.Ports = strings.Split(strings.Repeat("80,", 4096)+"80", ",") }), ginnel.KindInvalid},
			{"terminator of no service", terminator(func(t *ginnel.Terminator) { t.Service = "none" }), ginnel.KindNotFound},
			{"terminator at no router", terminator(func(t *ginnel.Terminator) { t.Router = "none" }), ginnel.KindNotFound},
			{"terminator of a host", terminator(func(t *ginnel.Terminator) { t.Host = "h" }), ginnel.KindInvalid},
			{"terminator over tls", terminator(func(t *ginnel.Terminator) { t.Address = "tls:a:1" }), ginnel.KindInvalid},
			{"check of udp", terminator(func(t *ginnel.Terminator) {
				t.Address, t.Check = "udp:127.0.0.1:53", &ginnel.Check{Kind: ginnel.TCPCheck}
			}), ginnel.KindInvalid},
			{"check of no kind", terminator(func(t *ginnel.Terminator) { t.Check = &ginnel.Check{} }), ginnel.KindInvalid},
			{"terminator of negative cost", terminator(func(t *ginnel.Terminator) { t.StaticCost = -1 }), ginnel.KindInvalid},
			{"policy of no kind", policy(ginnel.Policy{ID: "p", Kind: "x"}), ginnel.KindInvalid},
			{"policy without selector", policy(ginnel.Policy{ID: "p", Kind: ginnel.DialPolicy, Identities: []string{"x"}, Services: []string{"#all"}}), ginnel.KindInvalid},
			{"link with itself", link(ginnel.LinkSpec{A: "r1", B: "r1"}), ginnel.KindInvalid},
			{"link to nobody", link(ginnel.LinkSpec{A: "r1", B: "none"}), ginnel.KindNotFound},
			{"identity there already", identity(api.IdentityCreate{Identity: ginnel.Identity{ID: AdminID}}), ginnel.KindConflict},
			{"update of nothing", b.api.Services.Update(ctx, "none", ginnel.Service{}), ginnel.KindNotFound},
			{"renaming", b.api.Services.Update(ctx, "web", ginnel.Service{ID: "web2"}), ginnel.KindInvalid},
			{"deletion of nothing", b.api.Routers.Delete(ctx, "none"), ginnel.KindNotFound},
			{"token for nobody", second(b.api.Token(ctx, ginnel.RoleIdentity, "none", api.TokenCreate{})), ginnel.KindNotFound},
			{"token for a controller", second(b.api.Token(ctx, ginnel.RoleController, "c1", api.TokenCreate{})), ginnel.KindInvalid},
			{"router not there", second(b.api.Routers.Get(ctx, "none")), ginnel.KindNotFound},
			{"circuit not there", second(b.api.Circuits.GetCircuit(ctx, "none")), ginnel.KindNotFound},
			{"dial of nobody", second(b.api.Dialer.InspectDial(ctx, "none")), ginnel.KindNotFound},
		} {
			if got := kindOf(tt.err); got != tt.want {
				t.Errorf("%s: kind %d, %v", tt.name, got, tt.err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// What was written is read at once, with what is live beside it.
func TestAdminReadsItsWrites(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		ctx := t.Context()
		r := b.router("r1", "tls:r1:1")
		b.router("r2")
		b.service("web")
		for _, want := range []string{"web@r1", "web@r1-2", "web@r1-3"} {
			made, err := b.api.Terminators.Create(ctx, ginnel.Terminator{Service: "web", Router: "r1", Address: "tcp:127.0.0.1:80"})
			b.must(err)
			if made.ID != want {
				t.Errorf("terminator %s, want %s", made.ID, want)
			}
		}
		if all, err := b.api.Terminators.List(ctx); err != nil || len(all) != 3 || !all[0].Online || !all[0].Stored {
			t.Errorf("terminators: %+v, %v", all, err)
		}
		b.must(b.api.Terminators.Update(ctx, "web@r1", ginnel.Terminator{Address: "tcp:127.0.0.1:81", StaticCost: 5, Precedence: ginnel.Required}))
		if got, err := b.api.Terminators.Get(ctx, "web@r1"); err != nil || got.StaticCost != 5 || got.Router != "r1" || got.Address != "tcp:127.0.0.1:81" {
			t.Errorf("updated: %+v, %v", got, err)
		}
		made, err := b.api.Links.Create(ctx, ginnel.LinkSpec{A: "r2", B: "r1"})
		b.must(err)
		if l, err := b.api.Links.Get(ctx, made.ID); err != nil || !l.Stored || l.Up || l.A != "r1" {
			t.Errorf("link: %+v, %v", l, err)
		}
		if s, err := b.api.Services.Get(ctx, "web"); err != nil || s.Terminators != 3 {
			t.Errorf("service: %+v, %v", s, err)
		}
		if s, err := b.api.Status(ctx); err != nil || s.Routers != 1 || s.Network != "acme" || s.Revision == 0 {
			t.Errorf("status: %+v, %v", s, err)
		}
		// A router goes with all that refers to it, and its channel.
		b.must(b.api.Routers.Delete(ctx, "r1"))
		terminators, _ := b.api.Terminators.List(ctx)
		links, _ := b.api.Links.List(ctx)
		if len(terminators) != 0 || len(links) != 0 || r.conn().Err() == nil {
			t.Errorf("left: %v, %v", terminators, links)
		}
	})
}

func TestAdminWithoutQuorum(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.backend.SetDown(true)
		defer b.backend.SetDown(false)
		_, err := b.api.Services.Create(t.Context(), ginnel.Service{ID: "web"})
		if !isCode(err, ginnel.StoreUnavailable) {
			t.Errorf("write: %v", err)
		}
		if _, err := b.api.Services.List(t.Context()); err != nil {
			t.Errorf("read: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.api.Dialer.Redial(ctx, "none"); kindOf(err) != ginnel.KindNotFound {
			t.Errorf("redial: %v", err)
		}
	})
}

// Every metric is there and counts.
func TestMetrics(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1", "tls:r1:1")
		got := b.metrics()
		for name, want := range map[string]float64{
			"ginnel_controller_channels": 1, "ginnel_dialer_routers,Connected": 1, "ginnel_dialer_routers,NeedsDial": 0,
			"ginnel_dialer_dials_total,connected": 1,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s: %v, want %v", name, v, want)
			}
		}
	})
}
