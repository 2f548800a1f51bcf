// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// bind gives a terminator that an identity has bound at a router.
func (b *testbed) bind(host *pki.Credential, change func(*wire.Bind)) *wire.TerminatorState {
	b.Helper()
	bind := &wire.Bind{Network: "acme", Service: "web", Router: "r1", Precedence: uint32(ginnel.DefaultPrecedence), Nonce: make([]byte, 16)}
	if change != nil {
		change(bind)
	}
	signed, err := pki.Sign(host, wire.DomainBind, bind)
	b.must(err)
	id := wire.BindTerminatorID(bind, ginnel.IdentityID(host.Self.ID), signed.GetPayload())
	return &wire.TerminatorState{Id: string(id), Bind: signed, Host: host.Self.ID}
}

func (b *testbed) candidates(id ginnel.ServiceID) []terminator.Candidate {
	b.Helper()
	r := b.c.rules()
	service, ok := r.Services().Get(id)
	if !ok {
		b.Fatalf("no service %s", id)
	}
	return b.c.fabric.candidates(r, service)
}

// A terminator counts only with a good signature of its host, and while its
// host may host the service there.
func TestL108_BindWithoutPolicy(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		b.service("web")
		host := b.identity("host")
		r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(host, nil)}})
		if got := b.candidates("web"); len(got) != 0 {
			t.Fatalf("without policy: %v", got)
		}
		b.policy("may-host", ginnel.BindPolicy, "@host", "@web")
		got := b.candidates("web")
		if len(got) != 1 || got[0].Host != "host" || got[0].Router != "r1" {
			t.Fatalf("with policy: %v", got)
		}
		forged := b.bind(host, func(m *wire.Bind) { m.Cost = 5 })
		forged.Bind.Payload = append(slices.Clone(forged.Bind.Payload), 0)
		renamed := b.bind(host, func(m *wire.Bind) { m.Cost = 6 })
		renamed.Id = "web@r1/0000000000000000"
		r.report(&wire.State{Terminators: []*wire.TerminatorState{
			forged, renamed,
			b.bind(host, func(m *wire.Bind) { m.Router = "r2" }),
			b.bind(host, func(m *wire.Bind) { m.Network = "other" }),
			b.bind(host, func(m *wire.Bind) { m.Precedence = 9 }),
			b.bind(b.credential(ginnel.RoleIdentity, "host"), func(m *wire.Bind) { m.Cost = 7 }), // not the key that enrolled
			b.bind(r.holder.Load(), func(m *wire.Bind) { m.Cost = 8 }),
		}})
		if got := b.candidates("web"); len(got) != 1 {
			t.Errorf("after what cannot be: %v", got)
		}
		// Costs move without the signature being sent again, and go with the channel.
		r.report(&wire.State{Terminators: []*wire.TerminatorState{{Id: string(got[0].ID), Circuits: 3, Unhealthy: true}}})
		if got := b.candidates("web"); len(got) != 1 || got[0].Dynamic != ginnel.Units(6) || got[0].Precedence != ginnel.Failed {
			t.Errorf("with load: %+v", got)
		}
		r.conn().Close(nil)
		b.wait(100 * time.Millisecond)
		if got := b.candidates("web"); len(got) != 0 {
			t.Errorf("after the channel: %v", got)
		}
	})
}

// A bind is good for as long as the certificate that signed it, however long a
// router goes on to report it; a host that has renewed signs again.
func TestBindEndsWithItsCertificate(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		b.service("web")
		host := b.identity("host")
		b.policy("may-host", ginnel.BindPolicy, "@host", "@web")
		leaf, err := b.ca.IssueFor(time.Now(), time.Minute, host.Self, host.Key.Public())
		b.must(err)
		young, err := pki.NewCredential(host.Key, leaf, b.ca.Cert)
		b.must(err)
		r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(young, nil)}})
		if got := b.candidates("web"); len(got) != 1 {
			t.Fatalf("candidates: %v", got)
		}
		b.wait(2 * time.Minute)
		r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(young, nil)}}) // replayed
		if got := b.candidates("web"); len(got) != 0 {
			t.Errorf("after the end of the certificate: %v", got)
		}
		r.report(&wire.State{Terminators: []*wire.TerminatorState{b.bind(host, nil)}})
		if got := b.candidates("web"); len(got) != 1 {
			t.Errorf("signed again: %v", got)
		}
	})
}

// A quiesced router gets nothing new, until that is over.
func TestQuiesced(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		var rs []*testRouter
		for _, id := range []string{"r1", "r2", "r3"} {
			r := b.router(id)
			r.hello = &wire.RouterHello{EdgeAddress: "tls:" + id + ":443"}
			b.must(r.dial())
			rs = append(rs, r)
		}
		low := &wire.LinkState{Id: "r1/r2/0", Up: true, Measured: true}
		high := &wire.LinkState{Id: "r2/r3/0", Up: true, Measured: true}
		rs[0].report(&wire.State{Links: []*wire.LinkState{low}})
		rs[1].report(&wire.State{Links: []*wire.LinkState{low, high}})
		rs[2].report(&wire.State{Links: []*wire.LinkState{high}})
		alice := b.identity("alice")
		b.service("web")
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		_, err := b.api.Terminators.Create(t.Context(), ginnel.Terminator{Service: "web", Router: "r2", Address: "tcp:127.0.0.1:80"})
		b.must(err)
		_, err = rs[0].request(b.query(alice, nil))
		b.must(err)
		b.wait(time.Second)
		rs[0].lists()

		want := func(quiesced bool, routers ...string) {
			t.Helper()
			b.wait(time.Second)
			crosses := func(s *path.Snapshot) bool { _, ok := s.Tree("r1", path.Exclusions{}).To("r3"); return ok }
			if crosses(b.c.fabric.topology()) == quiesced || !crosses(b.c.fabric.throughQuiesced()) {
				t.Errorf("crossed by new circuits: %t, by old ones: %t", crosses(b.c.fabric.topology()), crosses(b.c.fabric.throughQuiesced()))
			}
			if got := b.candidates("web"); len(got) != 1 || got[0].Quiesced != quiesced {
				t.Errorf("candidates: %+v", got)
			}
			got := rs[0].lists()
			if len(got) != 1 || len(got[0].GetRouters()) != 3 || !slices.Equal(got[0].GetServices()[0].GetRouters(), routers) {
				t.Errorf("lists: %v, want services at %v", got, routers)
			}
		}
		quiesce := func(id ginnel.RouterID, quiesced bool) {
			t.Helper()
			b.must(b.api.Routers.Update(t.Context(), string(id), api.RouterCreate{Router: ginnel.Router{ID: id, Quiesced: quiesced}}))
		}
		quiesce("r2", true)
		want(true, "r1", "r3")
		quiesce("r2", false)
		want(false)
		quiesce("r1", true)
		quiesce("r2", true)
		want(true, "r3")
		quiesce("r3", true)
		want(true) // all of them: who dials is told why
	})
}

// A router is told the check of a terminator in full; while it says that the check
// fails, the terminator is the last to be chosen.
func TestHealthCheck(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		b.service("web")
		spec := ginnel.Terminator{
			ID: "t1", Service: "web", Router: "r1", Address: "tcp:127.0.0.1:80", Precedence: ginnel.Required,
			Check: &ginnel.Check{Kind: ginnel.HTTPCheck, Interval: ginnel.Duration(5 * time.Second)},
		}
		_, err := b.api.Terminators.Create(t.Context(), spec)
		b.must(err)
		b.wait(time.Second)
		told := func() *wire.HostedTerminator {
			t.Helper()
			all := take(r, (*wire.Message).GetRouterConfig)
			if len(all) == 0 || len(all[len(all)-1].GetTerminators()) != 1 {
				t.Fatalf("told %v", all)
			}
			return all[len(all)-1].GetTerminators()[0]
		}
		full := &wire.HealthCheck{Kind: "http", Path: "/", IntervalMs: 5000, TimeoutMs: 2000, Failures: 3, Successes: 2}
		if got := told().GetCheck(); !proto.Equal(got, full) {
			t.Errorf("told %v", got)
		}
		want := func(unhealthy bool, precedence ginnel.Precedence) {
			t.Helper()
			if got := b.candidates("web"); len(got) != 1 || got[0].Precedence != precedence {
				t.Errorf("candidates: %+v", got)
			}
			shown, err := b.api.Terminators.Get(t.Context(), "t1")
			if err != nil || shown.Unhealthy != unhealthy || shown.Effective != precedence || shown.Check == nil {
				t.Errorf("shown: %+v, %v", shown, err)
			}
		}
		want(false, ginnel.Required)
		r.report(&wire.State{Terminators: []*wire.TerminatorState{{Id: "t1", Unhealthy: true}}})
		want(true, ginnel.Failed)
		r.report(&wire.State{Terminators: []*wire.TerminatorState{{Id: "t1"}}})
		want(false, ginnel.Required)
		spec.Check = nil
		b.must(b.api.Terminators.Update(t.Context(), "t1", spec))
		b.wait(time.Second)
		if got := told().GetCheck(); got != nil {
			t.Errorf("told %v without a check", got)
		}
	})
}

func TestTopology(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r1, r2 := b.router("r1", "tls:r1:1"), b.router("r2")
		up := &wire.LinkState{Id: "r1/r2/0", Peer: "r2", Up: true, Measured: true, RttNs: int64(5 * time.Millisecond), StaticCost: int64(ginnel.Unit)}
		r1.report(&wire.State{Links: []*wire.LinkState{up, {Id: "r3/r4/0", Up: true}, {Id: "nonsense", Up: true}}})
		want := func(what string, routers, links int) {
			t.Helper()
			gotRouters, gotLinks := b.c.fabric.topology().Len()
			if gotRouters != routers || gotLinks != links {
				t.Errorf("%s: %d routers, %d links; want %d, %d", what, gotRouters, gotLinks, routers, links)
			}
		}
		want("one end", 1, 0)
		r2.mute = true
		b.must(r2.dial())
		r2.report(&wire.State{Links: []*wire.LinkState{up}})
		want("before the other's whole state", 1, 0)
		r2.report(&wire.State{End: true})
		want("both ends", 2, 1)
		cost := func() ginnel.Cost {
			way, _ := b.c.fabric.topology().Tree("r1", path.Exclusions{}).To("r2")
			return way.Cost
		}
		if got := cost(); got != ginnel.Units(16) {
			t.Errorf("cost %s", got)
		}
		// A cost that moves is published within 100 ms, a link that fails at once.
		moved := proto.Clone(up).(*wire.LinkState)
		moved.RttNs = int64(50 * time.Millisecond)
		r1.report(&wire.State{Links: []*wire.LinkState{moved}})
		b.wait(publishEvery)
		if got := cost(); got != ginnel.Units(61) {
			t.Errorf("moved cost %s", got)
		}
		// However often costs move, it is published every 100 ms at most.
		published, last := 0, b.c.fabric.topology()
		for i := range 100 {
			moved.RttNs = int64(time.Duration(i%2+1) * 20 * time.Millisecond)
			r1.report(&wire.State{Links: []*wire.LinkState{moved}})
			if now := b.c.fabric.topology(); now != last {
				published, last = published+1, now
			}
			b.wait(10 * time.Millisecond)
		}
		if published < 5 || published > 11 {
			t.Errorf("published %d times in a second", published)
		}
		down := proto.Clone(up).(*wire.LinkState)
		down.Up = false
		r2.report(&wire.State{Links: []*wire.LinkState{down}})
		want("one end down", 2, 0)
		r2.report(&wire.State{Links: []*wire.LinkState{up}})
		want("up again", 2, 1)
		r1.conn().Close(nil)
		b.wait(0)
		want("a router gone", 1, 0)
	})
}

// lastConfig gives the newest whole configuration that a router was sent.
func (r *testRouter) lastConfig() *wire.RouterConfig {
	var last *wire.RouterConfig
	for _, page := range take(r, (*wire.Message).GetRouterConfig) {
		if page.GetPage() == 0 {
			last = page
			continue
		}
		proto.Merge(last, page)
	}
	return last
}

func TestRouterConfig(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r1 := b.router("r1", "tls:r1:1")
		b.service("web")
		r2 := b.router("r2")
		_, err := b.api.Links.Create(t.Context(), ginnel.LinkSpec{A: "r2", B: "r1", Name: "x"})
		b.must(err)
		_, err = b.api.Terminators.Create(t.Context(), ginnel.Terminator{Service: "web", Router: "r1", Address: "tcp:127.0.0.1:80"})
		b.must(err)
		b.wait(time.Second)
		first := r1.lastConfig()
		if first == nil || len(first.GetTerminators()) != 1 || first.GetTerminators()[0].GetId() != "web@r1" {
			t.Fatalf("config of r1: %v", first)
		}
		// r1 has no address: it is the one to dial, when it knows where.
		if l := first.GetLinks(); len(l) != 1 || l[0].GetId() != "r1/r2/x" || !l[0].GetDial() || len(l[0].GetAddresses()) != 0 || l[0].GetStaticCost() != int64(ginnel.Unit) {
			t.Errorf("links of r1: %v", l)
		}
		r2.hello = &wire.RouterHello{LinkAddresses: []string{"tls:r2:9", "nonsense"}}
		b.must(r2.dial())
		b.wait(time.Second)
		second := r1.lastConfig()
		if second == nil || second.GetRevision() <= first.GetRevision() {
			t.Fatalf("config of r1 after an address changed: %v", second)
		}
		if l := second.GetLinks()[0]; !l.GetDial() || len(l.GetAddresses()) != 1 || l.GetAddresses()[0] != "tls:r2:9" {
			t.Errorf("links of r1: %v", l)
		}
		// With an address of r1 the higher id dials.
		r1.hello = &wire.RouterHello{LinkAddresses: []string{"tls:r1:9"}}
		r1.conn().Close(nil)
		b.wait(3 * time.Second)
		if l := r1.lastConfig().GetLinks()[0]; l.GetDial() || len(l.GetAddresses()) != 0 {
			t.Errorf("links of r1, which has an address: %v", l)
		}
		if l := r2.lastConfig().GetLinks()[0]; !l.GetDial() || l.GetAddresses()[0] != "tls:r1:9" {
			t.Errorf("links of r2: %v", l)
		}
		// Nothing is sent again that has not changed.
		b.c.configs.kick()
		b.wait(time.Second)
		if again := r1.lastConfig(); again != nil {
			t.Errorf("sent again: %v", again)
		}
		b.must(b.api.Routers.Delete(t.Context(), "r2"))
		b.wait(time.Second)
		if third := r1.lastConfig(); third == nil || len(third.GetLinks()) != 0 || third.GetRevision()>>32 <= second.GetRevision()>>32 {
			t.Errorf("after the peer was deleted: %v", third)
		}
	})
}

// A stored terminator counts once its router was told of it over its channel, or has
// reported it; between two rounds of telling that takes a moment.
func TestTerminatorCountsOnceItsRouterKnows(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r1 := b.router("r1")
		b.service("web")
		_, err := b.api.Terminators.Create(t.Context(), ginnel.Terminator{Service: "web", Router: "r1", Address: "tcp:127.0.0.1:80"})
		b.must(err)
		want := func(when string, untold bool) {
			t.Helper()
			if c := b.candidates("web"); len(c) != 1 || c[0].Untold != untold {
				t.Errorf("%s: %+v, want untold %t", when, c, untold)
			}
		}
		connect := func(rows ...*wire.TerminatorState) {
			b.wait(time.Second)
			b.c.configs.kick() // a round begins, and with it the pause after it
			synctest.Wait()
			b.must(r1.dial())
			r1.report(&wire.State{Terminators: rows})
			synctest.Wait()
		}
		connect()
		want("connected for the first time", true)
		b.wait(configDelay)
		want("told", false)
		r1.conn().Close(nil)
		connect()
		want("started anew", true)
		b.wait(configDelay)
		want("told again", false)
		r1.conn().Close(nil)
		connect(&wire.TerminatorState{Id: "web@r1"})
		want("it has reported it", false)
		// One that is made between two rounds.
		b.wait(time.Second)
		b.c.configs.kick()
		synctest.Wait()
		_, err = b.api.Terminators.Create(t.Context(), ginnel.Terminator{ID: "new", Service: "web", Router: "r1", Address: "tcp:127.0.0.1:81"})
		b.must(err)
		if c := b.candidates("web"); len(c) != 2 || !c[0].Untold || c[1].Untold {
			t.Errorf("one more: %+v", c)
		}
		b.wait(configDelay)
		if c := b.candidates("web"); len(c) != 2 || c[0].Untold {
			t.Errorf("one more, told: %+v", c)
		}
	})
}

// Routers that share a group are linked. A group's link outlives a restart of
// the controller, though it does not know the other's groups yet.
func TestLinkGroups(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r1, r2, r3 := b.router("r1", "tls:r1:1"), b.router("r2"), b.router("r3")
		in := func(groups ...string) *wire.RouterHello {
			return &wire.RouterHello{LinkGroups: groups, LinkAddresses: []string{"tls:x:1"}}
		}
		r1.hello, r2.hello, r3.hello = in("g", "h", "g"), in("g"), in("other")
		b.must(r2.dial())
		b.must(r3.dial())
		r1.conn().Close(nil)
		b.wait(3 * time.Second)
		if l := r1.lastConfig().GetLinks(); len(l) != 1 || l[0].GetId() != "r1/r2/0" {
			t.Fatalf("links of r1: %v", l)
		}
		b.stop()
		b.start()
		b.wait(time.Second)
		r1.report(&wire.State{Links: []*wire.LinkState{{Id: "r1/r2/0", Peer: "r2", Up: true}}})
		b.wait(time.Second)
		if l := r1.lastConfig().GetLinks(); len(l) != 1 {
			t.Errorf("links of r1 after a restart: %v", l)
		}
		r2.hello = in("other")
		b.must(r2.dial())
		b.wait(time.Second)
		if l := r1.lastConfig().GetLinks(); len(l) != 0 {
			t.Errorf("links of r1 when r2 has left the group: %v", l)
		}
	})
}

func TestConfigPages(t *testing.T) {
	var many []ginnel.Terminator
	for range 1000 {
		many = append(many, ginnel.Terminator{ID: "web@r1", Service: "web", Address: "tcp:some.name.example:8080"})
	}
	pages := configPages(nil, many)
	n := 0
	for _, p := range pages {
		n += len(p.GetTerminators())
		if proto.Size(p) > pageBytes {
			t.Errorf("page of %d bytes", proto.Size(p))
		}
	}
	if n != 1000 || len(pages) < 2 {
		t.Errorf("%d terminators in %d pages", n, len(pages))
	}
}
