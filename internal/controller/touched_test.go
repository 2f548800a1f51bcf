// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// smallWorld changes a store of few names at random, so that everything meets.
type smallWorld struct {
	*testbed
	rng *rand.Rand
}

var (
	smallNames = []string{"x", "y", "z"}
	smallKinds = []ginnel.PolicyKind{ginnel.DialPolicy, ginnel.BindPolicy, ginnel.EdgeRouterPolicy}
)

func (w *smallWorld) one(of ...string) string { return of[w.rng.IntN(len(of))] }

func (w *smallWorld) roles() []string {
	return [][]string{nil, {"a"}, {"b"}, {"a", "b"}}[w.rng.IntN(4)]
}

func (w *smallWorld) selectors() []string {
	var list []string
	for range 1 + w.rng.IntN(2) {
		list = append(list, w.one("#a", "#b", "@x", "@y", "@z", "#all"))
	}
	return list
}

// step changes something, or several things in one commit.
func (w *smallWorld) step() {
	w.Helper()
	w.update(func(tx *store.Tx) error {
		for range 1 + w.rng.IntN(3) {
			name := w.one(smallNames...)
			var err error
			switch w.rng.IntN(8) {
			case 0:
				err = ignoreMissing(tx.Policies().Delete(ginnel.PolicyID(name)))
			case 1:
				err = ignoreMissing(tx.Services().Delete(ginnel.ServiceID(name)))
			case 2, 3:
				s := ginnel.Service{ID: ginnel.ServiceID(name), Roles: w.roles(), Attempts: w.rng.IntN(3)}
				if w.rng.IntN(2) == 0 {
					s.Intercept = &ginnel.Intercept{Addresses: []string{w.one("a.internal", "b.internal")}, Ports: []string{"80"}}
				}
				err = tx.Services().Put(s)
			case 4:
				err = tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID(name), Roles: w.roles(), Key: "key", Disabled: w.rng.IntN(4) == 0})
			case 5:
				err = tx.Routers().Put(ginnel.Router{ID: ginnel.RouterID(name), Roles: w.roles(), Disabled: w.rng.IntN(4) == 0, Quiesced: w.rng.IntN(4) == 0})
			default:
				p := ginnel.Policy{ID: ginnel.PolicyID(name), Kind: smallKinds[w.rng.IntN(3)], AllOf: w.rng.IntN(2) == 0, Identities: w.selectors(), Services: w.selectors()}
				if p.Kind == ginnel.EdgeRouterPolicy {
					p.Routers = w.selectors()
				}
				err = tx.Policies().Put(p)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// What changes somebody's list concerns them, and what ends a row shakes it:
// held against asking everybody about everything, before and after.
func TestNothingTouchedIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &smallWorld{newTestbed(t), rand.New(rand.NewPCG(7, 11))}
		defer func() { w.store.Close(); w.backend.Close() }()
		c := &Controller{store: w.store, holder: w.holder}
		c.fabric = newFabric(c)
		for _, id := range smallNames {
			c.fabric.peers[ginnel.RouterID(id)] = &wire.RouterHello{EdgeAddress: "tls:" + id + ":1"}
		}
		_, changes := w.store.Subscribe()
		defer changes.Close()
		quiet, concerned, kept, ended := 0, 0, 0, 0
		for range 800 {
			before := c.rules()
			w.step()
			lists, rows := newTouched(), newTouched()
			for _, change := range changes.Take() {
				if change.Kind != store.KindService || !sameInLists(change) {
					lists.note(change)
				}
				if takes(change) {
					rows.note(change)
				}
			}
			after := c.rules()
			then, now := c.newOffer(before), c.newOffer(after)
			news := newNews(now, lists)
			for _, id := range smallNames {
				identity, ok := after.Identities().Get(ginnel.IdentityID(id))
				if was, known := before.Identities().Get(identity.ID); !ok || !known || !slices.Equal(was.Roles, identity.Roles) || was.Disabled != identity.Disabled {
					continue // its own change always concerns it
				}
				who := after.policies.Who(identity)
				same := slices.EqualFunc(then.pages(before.policies.Who(identity)), now.pages(who), func(a, b *wire.ServiceList) bool { return proto.Equal(a, b) })
				switch concern := news.concern(identity, who); {
				case !same && !concern:
					t.Fatalf("the list of %s changed, and nothing concerned it: %+v", id, lists)
				case concern:
					concerned++
				default:
					quiet++
				}
			}
			shaken := newShaken(after, rows)
			for _, row := range smallRows() {
				passed := row.verdict(before) == verdict{}
				now := row.verdict(after) == verdict{}
				switch {
				case passed && !now && !row.shaken(shaken):
					t.Fatalf("%+v lost its ground, and was not shaken: %+v", row, rows)
				case passed && !now:
					ended++
				case passed && !row.shaken(shaken):
					kept++
				}
			}
		}
		if quiet < 100 || concerned < 100 || kept < 100 || ended < 20 {
			t.Errorf("too little happened: %d lists concerned, %d not; %d rows kept unasked, %d ended", concerned, quiet, kept, ended)
		}
	})
}

// smallRow is a row of any kind at a router.
type smallRow struct {
	at       ginnel.RouterID
	edge     *edgeRow
	bound    *terminatorRow
	endpoint *endpointRow
}

func smallRows() (all []smallRow) {
	for _, at := range smallNames {
		for _, id := range smallNames {
			all = append(all, smallRow{at: ginnel.RouterID(at), edge: &edgeRow{identity: ginnel.IdentityID(id), key: "key"}})
			for _, service := range smallNames {
				all = append(all, smallRow{at: ginnel.RouterID(at), bound: &terminatorRow{key: "key", spec: ginnel.Terminator{
					Service: ginnel.ServiceID(service), Host: ginnel.IdentityID(id), Router: ginnel.RouterID(at),
				}}})
				for _, host := range smallNames {
					ticket := &wire.Ticket{Client: id, Service: service, PeerRole: string(ginnel.RoleIdentity), Peer: host}
					all = append(all,
						smallRow{at: ginnel.RouterID(at), endpoint: &endpointRow{ticket: ticket}},
						smallRow{at: ginnel.RouterID(at), endpoint: &endpointRow{ticket: ticket, endpointKey: endpointKey{host: true}}})
				}
			}
		}
	}
	return all
}

func (r smallRow) verdict(of rules) verdict {
	b := bench{rules: of}
	b.router, _ = of.Routers().Get(r.at)
	switch {
	case r.edge != nil:
		return b.edge(r.edge)
	case r.bound != nil:
		return b.bound(r.bound)
	}
	return b.endpoint(r.endpoint)
}

func (r smallRow) shaken(s shaken) bool {
	switch {
	case r.edge != nil:
		return s.edge(r.at, r.edge)
	case r.bound != nil:
		return s.bound(r.at, r.bound)
	}
	return s.endpoint(r.at, r.endpoint)
}

// A burst of writes reaches who it concerns as one list, nobody else at all,
// and leaves nothing behind.
func TestBurstOfWrites(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		r.hello = &wire.RouterHello{EdgeAddress: "tls:r1:443"}
		r.conn().Close(nil)
		b.wait(3 * time.Second)
		alice, bob := b.identity("alice", "staff"), b.identity("bob")
		b.policy("dial", ginnel.DialPolicy, "#staff", "#tools")
		for edge, c := range []*pki.Credential{alice, bob} {
			m := b.query(c, nil)
			m.GetServicesRequest().Edge = uint64(edge) + 1
			_, err := r.request(m)
			b.must(err)
		}
		b.wait(time.Second)
		r.lists()
		for i := range 1000 {
			_, err := b.api.Services.Create(t.Context(), ginnel.Service{ID: ginnel.ServiceID(fmt.Sprintf("s%d", i)), Roles: []string{"tools"}})
			b.must(err)
			if i%10 == 0 {
				b.policy(ginnel.PolicyID(fmt.Sprintf("p%d", i)), ginnel.DialPolicy, "@nobody", "#tools")
			}
		}
		b.wait(time.Second)
		var services, lists int
		for _, page := range r.lists() {
			if page.GetIdentity() != "alice" {
				t.Errorf("a list for %s", page.GetIdentity())
			}
			if services += len(page.GetServices()); page.GetPage() == 0 {
				lists++
			}
		}
		if lists != 1 || services != 1000 {
			t.Errorf("%d lists with %d services, want one with 1000", lists, services)
		}
		if s := b.c.services; !s.take().empty() || !b.c.judge.touched.empty() {
			t.Error("something is kept of what was told")
		}
	})
}

// Routers that know one number only take what comes when it cannot be told in one.
func TestRevisionAndTimeInOne(t *testing.T) {
	order := []int64{inOne(1, 5), inOne(1, 6), inOne(2, 1), inOne(1<<31-1, 1<<40), inOne(1<<31, 1)}
	if !slices.IsSorted(order) || order[0] != 1<<32|5 || order[4] != inOne(1<<40, 7) {
		t.Errorf("got %v", order)
	}
}
