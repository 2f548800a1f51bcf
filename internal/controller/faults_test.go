// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// noted counts the faults of a kind.
func (c *Controller) noted(t *testing.T, kind string) (n int) {
	t.Helper()
	families, err := c.Metrics().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "ginnel_controller_router_faults_total" && m.GetLabel()[0].GetValue() == kind {
				n = int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// A fault is told once, and again after an hour; other routers and kinds are
// others; who was deleted begins anew.
func TestFaultsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		f := newFaults(slog.New(slog.NewTextHandler(&text, nil)), prometheus.NewRegistry())
		told := func() int { return strings.Count(text.String(), "router is at fault") }
		for range 1000 {
			f.note("r1", faultReport, errors.New("x"))
		}
		if n := told(); n != 1 || !strings.Contains(text.String(), "level=WARN") || !strings.Contains(text.String(), "router_id=r1") {
			t.Errorf("told %d times: %s", n, text.String())
		}
		f.note("r1", faultAnswer, errors.New("x"))
		f.note("r2", faultReport, errors.New("x"))
		if n := told(); n != 3 {
			t.Errorf("told %d times, want 3", n)
		}
		time.Sleep(faultAgain)
		f.note("r1", faultReport, errors.New("x"))
		f.forget("r2")
		f.note("r2", faultReport, errors.New("x"))
		if n := told(); n != 5 {
			t.Errorf("told %d times, want 5", n)
		}
	})
}

// What only a router can have done wrong is its fault; what others brought about is not.
func TestWhoseFault(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind string // empty: nobody's
		do   func(b *testbed, r *testRouter)
	}{
		{"bind with a wrong signature", faultReport, func(b *testbed, r *testRouter) {
			forged := b.bind(b.identity("other"), nil)
			forged.Bind.Signature[7] ^= 1
			r.report(&wire.State{Terminators: []*wire.TerminatorState{forged}})
		}},
		{"bind for another router", faultReport, func(b *testbed, r *testRouter) {
			r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(b.identity("other"), func(m *wire.Bind) { m.Router = "r2" })}})
		}},
		{"ticket of nobody", faultReport, func(b *testbed, r *testRouter) {
			e := b.endpoint("c9", false, nil)
			e.Ticket.Signature[7] ^= 1
			r.report(&wire.State{Endpoints: []*wire.EndpointState{e}})
		}},
		{"another's link", faultReport, func(_ *testbed, r *testRouter) {
			r.report(&wire.State{Links: []*wire.LinkState{{Id: "r2/r3/0", Up: true}}})
		}},
		{"answer that is too long", faultAnswer, func(b *testbed, r *testRouter) {
			b.must(r.conn().Notify(&wire.Message{Body: &wire.Message_RouteResult{RouteResult: &wire.RouteResult{
				Circuit: "c1", Generation: 1, Early: make([]byte, wire.MaxEarlyBack+1),
			}}}))
		}},
		{"terminator that was revoked", faultKept, func(b *testbed, _ *testRouter) {
			b.must(b.api.Policies.Delete(b.Context(), "bind"))
		}},
		{"circuit that was revoked", faultKept, func(b *testbed, _ *testRouter) {
			b.must(b.api.Policies.Delete(b.Context(), "dial"))
		}},
		{"bind without a policy, until it is revoked", "", func(b *testbed, r *testRouter) {
			bind := b.bind(b.identity("other"), nil)
			r.report(&wire.State{Terminators: []*wire.TerminatorState{bind}})
			b.wait(4 * time.Second)
			r.report(&wire.State{Terminators: []*wire.TerminatorState{{Id: bind.GetId(), Removed: true}}})
		}},
		{"bind of a certificate that has ended", "", func(b *testbed, r *testRouter) {
			c := b.identity("other")
			leaf, err := b.ca.IssueFor(time.Now().Add(-time.Hour), time.Minute, c.Self, c.Key.Public())
			b.must(err)
			c.Leaf = leaf
			r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(c, nil)}})
		}},
		{"silence", "", func(b *testbed, r *testRouter) {
			b.net.Silence("r1", "c1")
			b.must(b.api.Policies.Delete(b.Context(), "dial"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
				tt.do(b, r)
				b.wait(40 * time.Second)
				for _, kind := range []string{faultReport, faultKept, faultAnswer, faultClaim} {
					if n := b.c.noted(t, kind); (n > 0) != (kind == tt.kind) {
						t.Errorf("%d faults of kind %q", n, kind)
					}
				}
			})
		})
	}
}
