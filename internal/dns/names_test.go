// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

var epoch = time.Unix(1_000_000, 0)

func service(id string, ports string, addresses ...string) Service {
	return Service{ID: ginnel.ServiceID(id), Intercept: ginnel.Intercept{Addresses: addresses, Ports: []string{ports}}}
}

func mustTable(t testing.TB, services ...Service) *Table {
	t.Helper()
	table, err := NewTable(services)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func mustNames(t testing.TB, pool string, limits Limits, kept ...Binding) *bindings {
	t.Helper()
	names, err := newBindings(netip.MustParsePrefix(pool), limits, epoch, kept)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func set(t testing.TB, n *bindings, now time.Time, services ...Service) {
	t.Helper()
	if err := n.SetTable(now, mustTable(t, services...)); err != nil {
		t.Fatal(err)
	}
}

func mustAddress(t testing.TB, n *bindings, now time.Time, name string) netip.Addr {
	t.Helper()
	addr, ok, err := n.Address(now, name, netip.Addr{})
	if !ok || err != nil {
		t.Fatalf("address of %s: ok %v, err %v", name, ok, err)
	}
	return addr
}

func TestTable_Find(t *testing.T) {
	table := mustTable(t,
		service("any", "1-65535", "*.cla.internal"),
		service("tnas", "443", "tnas.cla.internal"),
		service("deep", "22", "*.lab.cla.internal"),
		service("b-web", "80", "web.internal"),
		service("a-web", "80", "web.internal"),
		service("range", "8000-8010", "web.internal"),
		service("one", "8005", "WEB.internal."),
		service("literal", "53", "192.0.2.1"),
		service("lan", "1-65535", "10.0.0.0/8"),
		service("rack", "1-1000", "10.20.0.0/16", "fd00:1::/32"),
		service("rack-web", "80-81", "10.20.0.0/16"),
		service("box", "80", "10.20.0.7", "10.20.0.7/32"),
		Service{"udp", ginnel.Intercept{Addresses: []string{"web.internal"}, Ports: []string{"53"}, Protocols: []string{"udp"}}},
	)
	for _, test := range []struct {
		name     string
		port     uint16
		protocol string
		want     ginnel.ServiceID
	}{
		{"x.cla.internal", 1, "tcp", "any"},
		{"a.b.cla.internal", 65535, "tcp", "any"},
		{"cla.internal", 443, "tcp", ""},
		{"xcla.internal", 443, "tcp", ""},
		{"tnas.cla.internal", 443, "tcp", "tnas"},
		{"tnas.cla.internal", 80, "tcp", "any"},
		{"x.lab.cla.internal", 22, "tcp", "deep"},
		{"x.lab.cla.internal", 23, "tcp", "any"},
		{"web.internal", 80, "tcp", "a-web"},
		{"WEB.Internal.", 8001, "tcp", "range"},
		{"web.internal", 8005, "tcp", "one"},
		{"web.internal", 53, "udp", "udp"},
		{"web.internal", 53, "tcp", ""},
		{"192.0.2.1", 53, "tcp", "literal"},
		{"192.0.2.2", 53, "tcp", ""},
		{"10.9.9.9", 80, "tcp", "lan"},
		{"10.20.0.8", 80, "tcp", "rack-web"}, // the narrower range of ports
		{"10.20.0.8", 82, "tcp", "rack"},     // the longer prefix
		{"10.20.0.8", 1001, "tcp", "lan"},    // the longer one does not serve it
		{"10.20.0.7", 80, "tcp", "box"},      // the address itself
		{"::ffff:10.20.0.7", 80, "tcp", "box"},
		{"10.20.0.7", 81, "tcp", "rack-web"},
		{"10.20.0.7", 80, "udp", ""},
		{"11.0.0.1", 80, "tcp", ""},
		{"fd00:1::7", 80, "tcp", "rack"},
		{"fd00:2::7", 80, "tcp", ""},
		{"fe80::1%eth0", 80, "tcp", ""},
		{"", 53, "tcp", ""},
		{"a..b", 53, "tcp", ""},
	} {
		if got, _ := table.Find(test.name, test.port, test.protocol); got != test.want {
			t.Errorf("Find(%q, %d, %s): got %q, want %q", test.name, test.port, test.protocol, got, test.want)
		}
	}
}

func TestTable_Prefixes(t *testing.T) {
	table := mustTable(t,
		service("a", "80", "10.20.0.0/16", "10.0.0.0/8", "x.internal"),
		service("b", "1-65535", "10.20.0.0/16", "192.0.2.1"),
		service("c", "80", "10.20.0.0/16"),
	)
	if got, want := fmt.Sprint(table.Prefixes("tcp")), "[{10.0.0.0/8 [80]} {10.20.0.0/16 [1-65535 80]} {192.0.2.1/32 [1-65535]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := table.Prefixes("udp"); len(got) != 0 {
		t.Errorf("udp: got %v, want none", got)
	}
	if !table.Covers(netip.MustParseAddr("10.1.2.3")) || table.Covers(netip.MustParseAddr("192.0.2.2")) {
		t.Error("covers what it should not, or not what it should")
	}
}

func TestTable_BadServicesAreNamedAndLeftOut(t *testing.T) {
	for _, bad := range []Service{
		service("bad", "0", "x.internal"), service("bad", "9-8", "x.internal"), service("bad", "a", "x.internal"),
		service("bad", "65536", "x.internal"), service("bad", "1", "*"), service("bad", "1", "*."),
		service("bad", "1", "a b"), service("bad", "1", "*.*.x"),
		service("bad", "1", "10.20.0.1/16"), service("bad", "1", "8.0.0.0/7"), service("bad", "1", "0.0.0.0/0"),
		service("bad", "1", "::ffff:10.0.0.0/104"), service("bad", "1", "10.0.0.0/33"),
		{"bad", ginnel.Intercept{Addresses: []string{"x.internal"}, Ports: []string{"1"}, Protocols: []string{"sctp"}}},
	} {
		table, err := NewTable([]Service{bad, service("good", "1", "good.internal")})
		if err == nil {
			t.Errorf("%+v: no error", bad)
		}
		if _, ok := table.Find("good.internal", 1, "tcp"); !ok || table.Exact("x.internal") {
			t.Errorf("%+v: the good one is gone or the bad one is there", bad)
		}
	}
}

func TestL82_OneAddressWhateverTheSpelling(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{})
	set(t, n, epoch, service("a", "80", "App.Internal."), service("b", "81", "app.internal"))
	if got := n.Live(); len(got) != 1 || got[0].Name != "app.internal" {
		t.Errorf("live: got %v, want app.internal alone", got)
	}
}

func TestL83_OtherServiceKeepsNameAndAddress(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{})
	a, b := service("a", "80", "app.internal"), service("b", "81", "app.internal")
	set(t, n, epoch, a, b)
	before := mustAddress(t, n, epoch, "app.internal")
	set(t, n, epoch.Add(time.Second), b)
	if after := mustAddress(t, n, epoch.Add(time.Second), "app.internal"); after != before {
		t.Errorf("address: got %s, want %s", after, before)
	}
	if _, ok := n.Table().Find("app.internal", 80, "tcp"); ok {
		t.Error("port 80 is still served")
	}
	if got, _ := n.Table().Find("app.internal", 81, "tcp"); got != "b" {
		t.Errorf("port 81: got %q, want b", got)
	}
}

func TestL84_SameAddressAfterRestart(t *testing.T) {
	n := mustNames(t, "100.64.0.0/24", Limits{})
	var services []Service
	for i := range 200 { // far beyond the first collision
		services = append(services, service(fmt.Sprint("s", i), "80", fmt.Sprintf("s%d.internal", i)))
	}
	for _, s := range services { // the order decides who collides
		set(t, n, epoch, s)
	}
	set(t, n, epoch, services...)
	again := mustNames(t, "100.64.0.0/24", Limits{}, n.All()...)
	set(t, again, epoch, services...)
	for _, b := range n.Live() {
		if got := mustAddress(t, again, epoch, b.Name); got != b.Address {
			t.Errorf("%s: got %s after the restart, want %s", b.Name, got, b.Address)
		}
	}
}

func TestNames_ReleasedAddressRests(t *testing.T) {
	n := mustNames(t, "100.64.0.0/29", Limits{}) // room for five names
	var five []Service
	for i := range 5 {
		five = append(five, service(fmt.Sprint("s", i), "80", fmt.Sprintf("s%d.internal", i)))
	}
	set(t, n, epoch, five...)
	old := mustAddress(t, n, epoch, "s0.internal")
	set(t, n, epoch.Add(time.Hour), five[1:]...)
	if _, ok, _ := n.Address(epoch.Add(time.Hour), "s0.internal", netip.Addr{}); ok {
		t.Error("a released name is still answered")
	}
	if name, ok := n.Name(epoch.Add(time.Hour), old); ok {
		t.Errorf("a released address still means %s", name)
	}
	six := service("six", "80", "six.internal")
	early := epoch.Add(time.Hour + 99*time.Second)
	if err := n.SetTable(early, mustTable(t, append(five[1:], six)...)); !errors.Is(err, errFull) {
		t.Errorf("after 99 s: got %v, want %v", err, errFull)
	}
	late := epoch.Add(time.Hour + 100*time.Second)
	set(t, n, late, append(five[1:], six)...)
	if got := mustAddress(t, n, late, "six.internal"); got != old {
		t.Errorf("after 100 s: got %s, want the rested %s", got, old)
	}
}

func TestNames_ReturningNameHasItsOldAddress(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{})
	s := service("s", "80", "s.internal")
	set(t, n, epoch, s)
	old := mustAddress(t, n, epoch, "s.internal")
	set(t, n, epoch)
	set(t, n, epoch.Add(48*time.Hour), s)
	if got := mustAddress(t, n, epoch.Add(48*time.Hour), "s.internal"); got != old {
		t.Errorf("got %s, want %s", got, old)
	}
}

func TestNames_WildcardIsBoundedAndAged(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{MaxAsked: 3})
	set(t, n, epoch, service("w", "80", "*.w.internal"))
	first := mustAddress(t, n, epoch, "a.w.internal")
	mustAddress(t, n, epoch.Add(time.Second), "b.w.internal")
	mustAddress(t, n, epoch.Add(2*time.Second), "c.w.internal")
	if _, ok, err := n.Address(epoch.Add(109*time.Second), "d.w.internal", netip.Addr{}); !ok || !errors.Is(err, errFull) {
		t.Errorf("fourth name: ok %v, err %v, want %v", ok, err, errFull)
	}
	mustAddress(t, n, epoch.Add(112*time.Second), "d.w.internal")
	if _, ok := n.Name(epoch.Add(112*time.Second), first); ok {
		t.Error("the longest unused name is still there")
	}
	if got := len(n.All()); got != 3 {
		t.Errorf("%d names, want 3", got)
	}
	mustAddress(t, n, epoch.Add(25*time.Hour+time.Minute*5), "e.w.internal")
	if got := n.All(); len(got) != 1 || got[0].Name != "e.w.internal" {
		t.Errorf("after a day: got %v, want e alone", got)
	}
}

func TestNames_KeptOutsideTheRangeOrDoubledIsDropped(t *testing.T) {
	kept := []Binding{
		{Name: "a.internal", Address: netip.MustParseAddr("10.0.0.1")},
		{Name: "b.internal", Address: netip.MustParseAddr("100.64.0.9")},
		{Name: "c.internal", Address: netip.MustParseAddr("100.64.0.9")},
		{Name: "B.internal", Address: netip.MustParseAddr("100.64.0.10")},
		{Name: "", Address: netip.MustParseAddr("100.64.0.11")},
		{Name: "own.internal", Address: netip.MustParseAddr("100.64.0.1")},
		{Name: "last.internal", Address: netip.MustParseAddr("100.127.255.255")},
		{Name: "none.internal"},
	}
	n := mustNames(t, "100.64.0.0/10", Limits{}, kept...)
	if got := n.All(); len(got) != 1 || got[0].Name != "b.internal" {
		t.Errorf("got %v, want b.internal alone", got)
	}
}

func TestNames_RefusesBadRange(t *testing.T) {
	for _, pool := range []netip.Prefix{{}, netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("100.64.0.0/31")} {
		if _, err := newBindings(pool, Limits{}, epoch, nil); err == nil {
			t.Errorf("%s is accepted", pool)
		}
	}
}

// TestNames_Invariants runs random changes and questions over a small range
// and checks that no address changes its name too early, and that the changes
// that are told add up to what is live.
func TestNames_Invariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := mustNames(t, "100.64.0.0/28", Limits{MaxAsked: 6})
		now := epoch
		type use struct {
			name string
			at   time.Time
		}
		answered := map[netip.Addr]use{}
		told := map[string]netip.Addr{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(rt, "seconds")) * time.Second)
			if rapid.IntRange(0, 3).Draw(rt, "kind") == 0 {
				var services []Service
				if rapid.Bool().Draw(rt, "wildcard") {
					services = append(services, service("w", "80", "*.w.x"))
				}
				for _, i := range rapid.SliceOfN(rapid.IntRange(0, 19), 0, 12).Draw(rt, "exact") {
					services = append(services, service(fmt.Sprint("s", i), "80", fmt.Sprintf("s%d.w.x", i)))
				}
				_ = n.SetTable(now, mustTable(t, services...)) // may be full
			}
			name := fmt.Sprintf("s%d.w.x", rapid.IntRange(0, 19).Draw(rt, "name"))
			addr, ok, err := n.Address(now, name, netip.Addr{})
			if rapid.Bool().Draw(rt, "told") {
				follow(told, n.Change())
				for _, b := range n.Live() {
					if told[b.Name] != b.Address {
						rt.Fatalf("told that %s is %s, it is %s", b.Name, told[b.Name], b.Address)
					}
				}
				if len(told) != len(n.Live()) {
					rt.Fatalf("told of %v, live are %v", told, n.Live())
				}
			}
			if !ok || err != nil {
				continue
			}
			if last := answered[addr]; last.name != "" && last.name != name && now.Sub(last.at) < 110*time.Second {
				rt.Fatalf("%s went from %s to %s after %s", addr, last.name, name, now.Sub(last.at))
			}
			answered[addr] = use{name, now}
			if got, _ := n.Name(now, addr); got != name {
				rt.Fatalf("%s means %q, want %s", addr, got, name)
			}
		}
		seen := map[netip.Addr]bool{}
		for _, b := range n.All() {
			if seen[b.Address] {
				rt.Fatalf("%s has two names", b.Address)
			}
			seen[b.Address] = true
		}
	})
}

// follow does to all what a change says.
func follow(all map[string]netip.Addr, c Change) {
	if c.Whole {
		clear(all)
	}
	for _, b := range c.Removed {
		delete(all, b.Name)
	}
	for _, b := range append(c.Live, c.Added...) {
		all[b.Name] = b.Address
	}
}

// A flood of new names below a wildcard that has all it may costs no search each.
func TestNames_FullIsCheap(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{MaxAsked: 1000})
	set(t, n, epoch, service("w", "80", "*.w.x"))
	for i := range 1000 {
		mustAddress(t, n, epoch.Add(time.Duration(i)*time.Millisecond), fmt.Sprintf("n%d.w.x", i))
	}
	now := epoch.Add(time.Second)
	if _, _, err := n.Address(now, "more.w.x", netip.Addr{}); !errors.Is(err, errFull) {
		t.Fatalf("got %v", err)
	}
	name := "n0.w.x"
	n.byName[name].free = epoch // a search would find it
	if _, _, err := n.Address(now.Add(9*time.Second), "more.w.x", netip.Addr{}); !errors.Is(err, errFull) {
		t.Errorf("looked again too early: %v", err)
	}
	mustAddress(t, n, now.Add(10*time.Second), "more.w.x")
	if n.byName[name] != nil {
		t.Errorf("%s was not forgotten", name)
	}
}

// One who asks for new names without end leaves room to the others.
func TestNames_OneSourceLeavesNames(t *testing.T) {
	n := mustNames(t, "100.64.0.0/10", Limits{MaxAsked: 100})
	set(t, n, epoch, service("w", "80", "*.w.x"), service("e", "80", "exact.x"))
	flooder, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	ask := func(name string, source netip.Addr) error {
		_, _, err := n.Address(epoch, name, source)
		return err
	}
	got := 0
	for i := range 1000 {
		if ask(fmt.Sprintf("f%d.w.x", i), flooder) == nil {
			got++
		}
	}
	if got != 50 {
		t.Errorf("the flooder got %d names, want half", got)
	}
	for i := range 25 {
		if err := ask(fmt.Sprintf("o%d.w.x", i), other); err != nil {
			t.Fatalf("another's name %d: %v", i, err)
		}
	}
	for _, name := range []string{"f7.w.x", "exact.x"} { // what there is stays
		if err := ask(name, flooder); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := n.Address(epoch.Add(111*time.Second), "late.w.x", flooder); err != nil { // in place of an old one
		t.Errorf("when the rest of a name is over: %v", err)
	}
	if n.first[flooder] > 50 || n.first[other] != 25 || n.first[flooder]+n.first[other] != n.asked {
		t.Errorf("counted %v, there are %d", n.first, n.asked)
	}
	set(t, n, epoch)
	for range 1000 {
		n.forgetOldest(epoch.Add(time.Hour))
	}
	if len(n.first) != 0 {
		t.Errorf("after all were forgotten: counted %v", n.first)
	}
}
