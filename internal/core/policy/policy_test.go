// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

var (
	alice = ginnel.Identity{ID: "alice", Roles: []string{"staff", "night"}}
	bob   = ginnel.Identity{ID: "bob", Roles: []string{"staff"}}
	web   = ginnel.Service{ID: "web", Roles: []string{"internal"}}
	files = ginnel.Service{ID: "files"}
	r1    = ginnel.Router{ID: "r1", Roles: []string{"edge"}}
	r2    = ginnel.Router{ID: "r2"}
)

func dial(id ginnel.PolicyID, allOf bool, identities, services string) ginnel.Policy {
	return ginnel.Policy{ID: id, Kind: ginnel.DialPolicy, AllOf: allOf, Identities: strings.Fields(identities), Services: strings.Fields(services)}
}

func edge(id ginnel.PolicyID, identities, services, routers string) ginnel.Policy {
	return ginnel.Policy{
		ID: id, Kind: ginnel.EdgeRouterPolicy,
		Identities: strings.Fields(identities), Services: strings.Fields(services), Routers: strings.Fields(routers),
	}
}

func TestCanDial(t *testing.T) {
	cases := []struct {
		name   string
		policy ginnel.Policy
		want   bool // alice dials web
	}{
		{"by role", dial("p", false, "#staff", "#internal"), true},
		{"by id", dial("p", false, "@alice", "@web"), true},
		{"all", dial("p", false, "#all", "#all"), true},
		{"any of", dial("p", false, "#day #night", "#internal"), true},
		{"other id", dial("p", false, "@bob", "@web"), false},
		{"other service", dial("p", false, "@alice", "@files"), false},
		{"a role is no id", dial("p", false, "@staff", "@web"), false},
		{"an id is no role", dial("p", false, "#alice", "@web"), false},
		{"nobody", dial("p", false, "", "@web"), false},
		{"no service", dial("p", false, "@alice", ""), false},
		{"all of two", dial("p", true, "#staff #night", "#internal"), true},
		{"all of two, one missing", dial("p", true, "#staff #day", "#internal"), false},
		{"all of one missing and id", dial("p", true, "#day @alice", "#internal"), true},
		{"all of ids alone", dial("p", true, "@bob @carol", "#internal"), false},
		{"all of all", dial("p", true, "#all", "#all"), true},
		{"all of all and one missing", dial("p", true, "#all #day", "#all"), false},
		{"what cannot be read allows nothing", dial("p", false, "staff #", "#internal"), false},
		{"nor does it widen", dial("p", true, "#staff night", "#internal"), false},
		{"nor hide an id", dial("p", true, "#staff night @alice", "#internal"), true},
		{"other kind", ginnel.Policy{ID: "p", Kind: ginnel.BindPolicy, Identities: []string{"#all"}, Services: []string{"#all"}}, false},
		{"unknown kind", ginnel.Policy{ID: "p", Kind: "odd", Identities: []string{"#all"}, Services: []string{"#all"}}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := Compile([]ginnel.Policy{c.policy})
			if got := s.CanDial(alice, web); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if w := s.WhyDial(alice, web); w.Allowed != c.want || (w.Missing == "") != c.want {
				t.Errorf("why: got %+v, want %v", w, c.want)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	s := Compile([]ginnel.Policy{
		{ID: "b", Kind: ginnel.BindPolicy, Identities: []string{"@bob"}, Services: []string{"@files"}},
		edge("e-all", "#staff", "", "#edge"),
		edge("e-web", "@bob", "@web", "@r2"),
	})
	if !s.CanBind(bob, files) || s.CanBind(bob, web) || s.CanDial(bob, files) {
		t.Error("bind policy")
	}
	if !s.WhyBind(bob, files).Allowed || s.WhyBind(alice, files).Allowed {
		t.Error("why bind")
	}
	for _, c := range []struct {
		who  ginnel.Identity
		what ginnel.Service
		want []bool // of r1, r2
	}{{alice, files, []bool{true, false}}, {bob, web, []bool{true, true}}, {bob, files, []bool{true, false}}} {
		if got := []bool{s.CanUse(c.who, c.what, r1), s.CanUse(c.who, c.what, r2)}; !slices.Equal(got, c.want) {
			t.Errorf("%s for %s: edge routers %v, want %v", c.who.ID, c.what.ID, got, c.want)
		}
	}
	if !s.CanConnect(bob, r2) || s.CanConnect(alice, r2) {
		t.Error("connect")
	}
	if new(Set).CanDial(alice, web) || new(Set).WhyDial(alice, web).Allowed {
		t.Error("the zero value allows")
	}
}

func TestDisabledMayNothing(t *testing.T) {
	s := Compile([]ginnel.Policy{
		dial("d", false, "#all", "#all"), edge("e", "#all", "", "#all"),
		{ID: "b", Kind: ginnel.BindPolicy, Identities: []string{"#all"}, Services: []string{"#all"}},
	})
	off, offRouter := alice, r1
	off.Disabled, offRouter.Disabled = true, true
	if s.CanDial(off, web) || s.CanBind(off, web) || s.CanUse(off, web, r1) || s.CanUse(alice, web, offRouter) || s.CanConnect(off, r1) || s.CanConnect(alice, offRouter) {
		t.Error("something disabled may")
	}
	if w := s.WhyDial(off, web); w.Allowed || w.Missing != "identity alice disabled" || !slices.Equal(w.By, []ginnel.PolicyID{"d"}) {
		t.Errorf("got %+v", w)
	}
	if w := s.WhyEdge(off, web, offRouter); w.Missing != "identity alice and router r1 disabled" {
		t.Errorf("got %+v", w)
	}
}

// L45: the missing kind is named.
func TestAuthorize(t *testing.T) {
	d, e := dial("d", false, "#staff", "#internal"), edge("e", "#staff", "", "#edge")
	b := ginnel.Policy{ID: "b", Kind: ginnel.BindPolicy, Identities: []string{"@bob"}, Services: []string{"#all"}}
	off, offRouter := alice, r1
	off.Disabled, offRouter.Disabled = true, true
	cases := []struct {
		policies []ginnel.Policy
		identity ginnel.Identity
		service  ginnel.Service
		router   ginnel.Router
		dial     string
		bind     string
	}{
		{[]ginnel.Policy{d, e}, alice, web, r1, "", "NOT_AUTHORIZED: no bind policy joins identity alice and service web"},
		{[]ginnel.Policy{d, e, b}, bob, web, r1, "", ""},
		{[]ginnel.Policy{e}, alice, web, r1, "NOT_AUTHORIZED: no dial policy joins identity alice and service web", "NOT_AUTHORIZED: no bind policy joins identity alice and service web"},
		{[]ginnel.Policy{d, b}, bob, web, r1, "NOT_AUTHORIZED: no edge-router policy lets identity bob use router r1 for service web", "NOT_AUTHORIZED: no edge-router policy lets identity bob use router r1 for service web"},
		{[]ginnel.Policy{d, e, b}, off, web, r1, "NOT_AUTHENTICATED: identity alice is disabled", "NOT_AUTHENTICATED: identity alice is disabled"},
		{[]ginnel.Policy{d, e, b}, bob, web, offRouter, "NOT_AUTHENTICATED: router r1 is disabled", "NOT_AUTHENTICATED: router r1 is disabled"},
	}
	for i, c := range cases {
		s := Compile(c.policies)
		if got := text(s.AuthorizeDial(c.identity, c.service, c.router)); got != c.dial {
			t.Errorf("case %d, dial: got %q, want %q", i, got, c.dial)
		}
		if got := text(s.AuthorizeBind(c.identity, c.service, c.router)); got != c.bind {
			t.Errorf("case %d, bind: got %q, want %q", i, got, c.bind)
		}
	}
}

func text(err *ginnel.DialError) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestWhyNamesWhatIsNear(t *testing.T) {
	s := Compile([]ginnel.Policy{
		dial("z", false, "#all", "@files"), dial("a", false, "@bob", "#all"), dial("m", false, "@bob", "@files"),
	})
	w := s.WhyDial(alice, web)
	if want := []Near{{"a", "identities"}, {"z", "services"}}; !slices.Equal(w.Near, want) || len(w.By) != 0 {
		t.Errorf("got %+v, want near %v", w, want)
	}
}

func TestCheck(t *testing.T) {
	good := []ginnel.Policy{
		dial("p", true, "#a @b #all", "#c"),
		edge("p", "#a", "", "@r"),
		{ID: "p", Kind: ginnel.BindPolicy, Identities: []string{"#a"}, Services: []string{"#c"}},
	}
	for _, p := range good {
		if err := Check(p); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	withRouters := dial("p", false, "#a", "#b")
	withRouters.Routers = []string{"#r"}
	bad := []struct {
		policy ginnel.Policy
		want   string
	}{
		{dial("", false, "#a", "#b"), "name is empty"},
		{dial("p", false, "", "#b"), "identities: name at least one"},
		{dial("p", false, "#a", ""), "services: name at least one"},
		{withRouters, "routers: a dial policy has none"},
		{edge("p", "#a", "", ""), "routers: name at least one"},
		{dial("p", false, "alice", "#b"), `identities: selector "alice": want "#role", "@id" or "#all"`},
		{dial("p", false, "#", "#b"), `selector "#": name is empty`},
		{dial("p", false, "#a", "@x/y"), `services: selector "@x/y"`},
		{ginnel.Policy{ID: "p", Kind: "odd"}, `kind "odd": want dial, bind or edge-router`},
		{ginnel.Policy{ID: "p", Kind: ginnel.DialPolicy, Identities: []string{""}, Services: []string{"#a"}}, "selector is empty"},
	}
	for _, c := range bad {
		if err := Check(c.policy); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %s", c.policy, err, c.want)
		}
	}
	if CheckRole("staff") != nil || CheckRole("all") == nil || CheckRole("") == nil {
		t.Error("CheckRole is wrong")
	}
}

// Every answer against the plain reading of every policy.
func TestSetEqualsPlainReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		selectors := rapid.SliceOfN(rapid.SampledFrom([]string{"#a", "#b", "#c", "#all", "@x", "@y", "a", "#"}), 0, 4)
		roles := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "all"}), 0, 3)
		id := rapid.SampledFrom([]string{"x", "y", "z"})
		// More policies than one word holds, and than fit without allocation.
		repeat := rapid.SampledFrom([]int{1, 30, 300}).Draw(t, "repeat")
		var policies []ginnel.Policy
		for i := range rapid.IntRange(0, 8).Draw(t, "policies") {
			p := ginnel.Policy{
				Kind:       rapid.SampledFrom([]ginnel.PolicyKind{ginnel.DialPolicy, ginnel.BindPolicy, ginnel.EdgeRouterPolicy}).Draw(t, "kind"),
				Identities: selectors.Draw(t, "identities"), Services: selectors.Draw(t, "services"), Routers: selectors.Draw(t, "routers"),
				AllOf: rapid.Bool().Draw(t, "all of"),
			}
			for j := range repeat {
				p.ID = ginnel.PolicyID(fmt.Sprintf("p%d.%d", i, j))
				policies = append(policies, p)
			}
		}
		i := ginnel.Identity{ID: ginnel.IdentityID(id.Draw(t, "identity")), Roles: roles.Draw(t, "roles"), Disabled: rapid.IntRange(0, 9).Draw(t, "disabled") == 0}
		sv := ginnel.Service{ID: ginnel.ServiceID(id.Draw(t, "service")), Roles: roles.Draw(t, "service roles")}
		r := ginnel.Router{ID: ginnel.RouterID(id.Draw(t, "router")), Roles: roles.Draw(t, "router roles")}

		// Put together in any number of steps, over what was there before.
		cut := rapid.IntRange(0, len(policies)).Draw(t, "cut")
		var before []ginnel.Policy
		var gone []ginnel.PolicyID
		for _, p := range policies {
			old := p
			old.Kind, old.AllOf, old.Identities = ginnel.DialPolicy, !p.AllOf, []string{"#all"}
			other := old
			other.ID = "gone-" + p.ID
			before, gone = append(before, old, other), append(gone, other.ID)
		}
		s := Compile(policies)
		if rapid.Bool().Draw(t, "steps") {
			s = Compile(before).With(policies[:cut], nil).With(policies[cut:], gone)
		}
		who, what, where := s.Who(i), s.What(sv), s.Where(r)
		for _, c := range []struct {
			name  string
			got   bool
			party bool
			want  Why
			kind  ginnel.PolicyKind
		}{
			{"dial", s.CanDial(i, sv), who.CanDial(what), s.WhyDial(i, sv), ginnel.DialPolicy},
			{"bind", s.CanBind(i, sv), who.CanBind(what), s.WhyBind(i, sv), ginnel.BindPolicy},
			{"use", s.CanUse(i, sv, r), who.CanUse(what, where), s.WhyEdge(i, sv, r), ginnel.EdgeRouterPolicy},
		} {
			plain := !i.Disabled && slices.ContainsFunc(policies, func(p ginnel.Policy) bool { return p.Kind == c.kind && plainly(p, i, sv, r) })
			if c.got != plain || c.party != plain || c.want.Allowed != plain {
				t.Fatalf("%s: got %v, of the parties %v, why %+v, want %v", c.name, c.got, c.party, c.want, plain)
			}
		}
		if got, want := who.CanConnect(where), s.CanConnect(i, r); got != want {
			t.Fatalf("connect: got %v of the parties, want %v", got, want)
		}
		// Who has the same key may do the same.
		other := s.Who(ginnel.Identity{ID: ginnel.IdentityID(id.Draw(t, "another identity")), Roles: roles.Draw(t, "its roles")})
		if other.Key() == who.Key() && len(policies) > 0 && (other.CanDial(what) != who.CanDial(what) || other.CanBind(what) != who.CanBind(what) ||
			other.CanUse(what, where) != who.CanUse(what, where) || other.CanConnect(where) != who.CanConnect(where)) {
			t.Fatalf("one key, and they may not do the same: %x", who.Key())
		}
		reach, ids := who.Reach()
		reached := slices.Contains(ids, sv.ID) || slices.Contains(reach, All) ||
			slices.ContainsFunc(sv.Roles, func(role string) bool { return slices.Contains(reach, role) })
		if (who.CanDial(what) || who.CanBind(what)) && !reached {
			t.Fatalf("allowed, and not where Reach says: %v %v", reach, ids)
		}
		if who.CanConnect(where) && !who.Named() {
			t.Fatal("it may connect, and no policy names it")
		}
	})
}

// plainly is the meaning of a policy, written once more from its description.
func plainly(p ginnel.Policy, i ginnel.Identity, sv ginnel.Service, r ginnel.Router) bool {
	names := func(list []string, id string, roles []string) bool {
		if slices.Contains(list, "@"+id) {
			return true
		}
		var asked, had int
		for _, s := range list {
			if s[0] == '@' {
				continue
			}
			asked++
			if s == "#all" || s[0] == '#' && len(s) > 1 && slices.Contains(roles, s[1:]) {
				had++
			}
		}
		return had > 0 && (!p.AllOf || had == asked)
	}
	edge := p.Kind == ginnel.EdgeRouterPolicy
	return names(p.Identities, string(i.ID), i.Roles) &&
		(names(p.Services, string(sv.ID), sv.Roles) || edge && len(p.Services) == 0) &&
		(!edge || names(p.Routers, string(r.ID), r.Roles))
}

// scale gives a thousand policies of each kind over many roles and ids.
func scale() (*Set, ginnel.Identity, ginnel.Service, ginnel.Router) {
	var policies []ginnel.Policy
	for i := range 1000 {
		for _, kind := range []ginnel.PolicyKind{ginnel.DialPolicy, ginnel.BindPolicy, ginnel.EdgeRouterPolicy} {
			policies = append(policies, ginnel.Policy{
				ID: ginnel.PolicyID(fmt.Sprintf("%s-%d", kind, i)), Kind: kind, AllOf: i%10 == 0,
				Identities: []string{fmt.Sprintf("#team%d", i%100), fmt.Sprintf("#site%d", i%7), fmt.Sprintf("@user%d", i)},
				Services:   []string{fmt.Sprintf("#app%d", (i+1)%200), fmt.Sprintf("@service%d", i)},
				Routers:    []string{fmt.Sprintf("#region%d", i%5)},
			})
		}
	}
	return Compile(policies),
		ginnel.Identity{ID: "user", Roles: []string{"team1", "team2", "site1", "site3"}},
		ginnel.Service{ID: "service", Roles: []string{"app8", "app100", "app3"}},
		ginnel.Router{ID: "router", Roles: []string{"region9", "region8"}}
}

func TestQuestionsDoNotAllocate(t *testing.T) {
	s, i, sv, r := scale()
	if n := testing.AllocsPerRun(100, func() { s.CanDial(i, sv); s.CanUse(i, sv, r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	who, what, where := s.Who(i), s.What(sv), s.Where(r)
	if n := testing.AllocsPerRun(100, func() { who.CanDial(what); who.CanUse(what, where); who.CanConnect(where) }); n != 0 {
		t.Errorf("%v allocations of parties", n)
	}
	s = Compile([]ginnel.Policy{dial("d", false, "#team1", "#app8"), edge("e", "#team1", "", "#region9")})
	if n := testing.AllocsPerRun(100, func() {
		if err := s.AuthorizeDial(i, sv, r); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations of a dial that is allowed", n)
	}
}

func BenchmarkCanDial(b *testing.B) {
	s, i, sv, _ := scale()
	sv.Roles = []string{"none", "app199"} // policies 198, 398...: other teams
	i.Roles = []string{"team1", "team2", "team3"}
	b.ReportAllocs()
	for b.Loop() {
		if s.CanDial(i, sv) {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkCanUse(b *testing.B) {
	s, i, sv, r := scale()
	b.ReportAllocs()
	for b.Loop() {
		if s.CanUse(i, sv, r) {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkParties(b *testing.B) {
	s, i, sv, r := scale()
	who, what, where := s.Who(i), s.What(sv), s.Where(r)
	b.ReportAllocs()
	for b.Loop() {
		if who.CanUse(what, where) {
			b.Fatal("allowed")
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	s, _, _, _ := scale()
	all := slices.Concat(s.dial.policies, s.bind.policies, s.edge.policies)
	b.ReportAllocs()
	for b.Loop() {
		Compile(all)
	}
}

func BenchmarkWith(b *testing.B) {
	s, _, _, _ := scale()
	p := s.dial.policies[500]
	b.ReportAllocs()
	for b.Loop() {
		s = s.With([]ginnel.Policy{p}, nil)
	}
}
