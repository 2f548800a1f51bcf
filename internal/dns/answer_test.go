// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func testNames(t testing.TB) *bindings {
	n := mustNames(t, "100.64.0.0/10", Limits{})
	set(t, n, epoch,
		service("app", "80", "app.internal"),
		service("deep", "80", "x.y.internal"),
		service("any", "1-65535", "*.cla.internal"),
		service("out", "80", "db.example.com", "*.out.example.com"))
	return n
}

func query(name string, kind uint16) *dns.Msg { return new(dns.Msg).SetQuestion(name, kind) }

func TestReply(t *testing.T) {
	names := testNames(t)
	app := mustAddress(t, names, epoch, "app.internal")
	arpa, _ := dns.ReverseAddr(app.String())
	const a, aaaa, soaType = dns.TypeA, dns.TypeAAAA, dns.TypeSOA
	const ok, missing, refused = dns.RcodeSuccess, dns.RcodeNameError, dns.RcodeRefused
	for _, test := range []struct {
		name    string
		kind    uint16
		rcode   int
		answers int
		forward bool
	}{
		{"app.internal.", a, ok, 1, false},
		{"APP.internal.", a, ok, 1, false},
		{"db.example.com.", a, ok, 1, false},
		{"db.example.com.", aaaa, ok, 0, false},
		{"app.internal.", aaaa, ok, 0, false},
		{"app.internal.", dns.TypeHTTPS, ok, 0, false},
		{"app.internal.", dns.TypeSVCB, ok, 0, false},
		{"app.internal.", dns.TypeTXT, ok, 0, false},
		{"app.internal.", dns.TypeANY, refused, 0, false},
		{"app.internal.", dns.TypeAXFR, refused, 0, false},
		{"internal.", a, ok, 0, false},
		{"internal.", aaaa, ok, 0, false},
		{"internal.", dns.TypeNS, ok, 1, false},
		{"y.internal.", dns.TypeNS, ok, 0, false},
		{"y.internal.", soaType, ok, 0, false},
		{"app.internal.", dns.TypeNS, ok, 0, false},
		{"internal.", soaType, ok, 1, false},
		{"y.internal.", a, ok, 0, false},
		{"cla.internal.", a, ok, 0, false},
		{"tnas.cla.internal.", a, ok, 1, false},
		{"a.b.cla.internal.", a, ok, 1, false},
		{"new.cla.internal.", aaaa, ok, 0, false},
		{"nope.internal.", a, missing, 0, false},
		{"nope.internal.", aaaa, missing, 0, false},
		{"nope.internal.", dns.TypeANY, refused, 0, false},
		{"sub.app.internal.", a, missing, 0, false},
		{`a\.b.cla.internal.`, a, missing, 0, false},
		{`a\000b.internal.`, a, missing, 0, false},
		{"*.cla.internal.", a, missing, 0, false},
		{"example.com.", a, 0, 0, true},
		{"out.example.com.", a, 0, 0, true},
		{"q.out.example.com.", a, ok, 1, false},
		{"notinternal.", a, 0, 0, true},
		{".", dns.TypeNS, 0, 0, true},
		{arpa, dns.TypePTR, ok, 1, false},
		{strings.ToUpper(arpa), dns.TypePTR, ok, 1, false},
		{arpa, a, ok, 0, false},
		{arpa, dns.TypeANY, refused, 0, false},
		{"9.9.64.100.in-addr.arpa.", dns.TypePTR, missing, 0, false},
		{"64.100.in-addr.arpa.", soaType, ok, 0, false},
		{"1.64.100.in-addr.arpa.", dns.TypePTR, ok, 0, false},
		{"b._dns-sd._udp.0.64.100.in-addr.arpa.", dns.TypePTR, missing, 0, false},
		{"100.in-addr.arpa.", dns.TypeNS, 0, 0, true},
		{"1.1.128.100.in-addr.arpa.", dns.TypePTR, 0, 0, true},
		{"8.8.8.8.in-addr.arpa.", dns.TypePTR, 0, 0, true},
	} {
		q := query(test.name, test.kind)
		got, forward := reply(epoch, names, zones{"internal"}, q, netip.Addr{})
		if forward != test.forward {
			t.Errorf("%s %s: forward %v, want %v", test.name, dns.TypeToString[test.kind], forward, test.forward)
		}
		if forward || test.forward {
			continue
		}
		if got.Rcode != test.rcode || len(got.Answer) != test.answers {
			t.Errorf("%s %s: got %s with %d answers, want %s with %d", test.name, dns.TypeToString[test.kind],
				dns.RcodeToString[got.Rcode], len(got.Answer), dns.RcodeToString[test.rcode], test.answers)
		}
		wantWhole(t, q, got)
	}
}

// wantWhole wants of any answer that it goes with its question and, where it holds
// nothing, says for how long.
func wantWhole(t *testing.T, q, got *dns.Msg) {
	t.Helper()
	name, kind := q.Question[0].Name, dns.TypeToString[q.Question[0].Qtype]
	empty := got.Rcode != dns.RcodeRefused && len(got.Answer) == 0
	if hasSOA := len(got.Ns) == 1 && got.Ns[0].(*dns.SOA).Minttl == 10 && got.Ns[0].Header().Ttl == 10; hasSOA != empty {
		t.Errorf("%s %s: authority %v, want a SOA of 10 s: %v", name, kind, got.Ns, empty)
	}
	if got.Id != q.Id || !got.Response || got.Question[0] != q.Question[0] {
		t.Errorf("%s %s: id or question is not echoed", name, kind)
	}
	if _, err := got.Pack(); err != nil {
		t.Errorf("%s %s: %v", name, kind, err)
	}
}

func TestL80_NoAddressRecordsAreNeverAskedUpstream(t *testing.T) {
	names := testNames(t)
	for _, kind := range []uint16{dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT, dns.TypeMX, dns.TypeSRV} {
		for _, name := range []string{"app.internal.", "db.example.com.", "q.out.example.com."} {
			got, forward := reply(epoch, names, zones{"internal"}, query(name, kind), netip.Addr{})
			if forward || got.Rcode != dns.RcodeSuccess || len(got.Answer) != 0 || len(got.Ns) != 1 {
				t.Errorf("%s %s: got %v, forward %v, want NOERROR, empty, SOA", name, dns.TypeToString[kind], got, forward)
			}
		}
	}
	if got := len(names.Live()); got != 3 {
		t.Errorf("%d live names, want 3: only A allots an address", got)
	}
}

func TestL81_UnknownNameInZone(t *testing.T) {
	names := testNames(t)
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS} {
		got, forward := reply(epoch, names, zones{"internal"}, query("gone.internal.", kind), netip.Addr{})
		if forward || got.Rcode != dns.RcodeNameError || got.Ns[0].Header().Name != "internal." {
			t.Errorf("%s: got %v, forward %v, want NXDOMAIN from internal.", dns.TypeToString[kind], got, forward)
		}
	}
}

func TestL82_SpellingIsEchoed(t *testing.T) {
	names := testNames(t)
	lower, _ := reply(epoch, names, nil, query("app.internal.", dns.TypeA), netip.Addr{})
	upper, _ := reply(epoch, names, nil, query("APP.InTerNal.", dns.TypeA), netip.Addr{})
	if got := upper.Answer[0].Header().Name; got != "APP.InTerNal." || upper.Question[0].Name != got {
		t.Errorf("spelling: got %s, want APP.InTerNal.", got)
	}
	if got, want := upper.Answer[0].(*dns.A).A, lower.Answer[0].(*dns.A).A; !got.Equal(want) {
		t.Errorf("address: got %s, want %s", got, want)
	}
	if got := upper.Answer[0].Header().Ttl; got != 10 {
		t.Errorf("TTL: got %d, want 10", got)
	}
}

func TestReply_Refusals(t *testing.T) {
	names := testNames(t)
	notify := query("app.internal.", dns.TypeA)
	notify.Opcode = dns.OpcodeNotify
	two := query("app.internal.", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	chaos := query("version.bind.", dns.TypeTXT)
	chaos.Question[0].Qclass = dns.ClassCHAOS
	version := query("app.internal.", dns.TypeA).SetEdns0(1232, true)
	version.IsEdns0().SetVersion(1)
	for _, test := range []struct {
		query *dns.Msg
		want  int
	}{
		{notify, dns.RcodeNotImplemented},
		{two, dns.RcodeFormatError},
		{chaos, dns.RcodeRefused},
		{version, dns.RcodeBadVers},
		{new(dns.Msg), dns.RcodeFormatError},
	} {
		got, forward := reply(epoch, names, nil, test.query, netip.Addr{})
		if forward || got.Rcode != test.want {
			t.Errorf("%v: got %v, want %s", test.query, got, dns.RcodeToString[test.want])
		}
	}
}

func FuzzReply(f *testing.F) {
	for _, name := range []string{"app.internal.", "x.cla.internal.", "1.2.64.100.in-addr.arpa.", `\000.`} {
		wire, err := query(name, dns.TypeA).SetEdns0(4096, true).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	names := testNames(f)
	f.Fuzz(func(t *testing.T, wire []byte) {
		q := new(dns.Msg)
		if q.Unpack(wire) != nil {
			return
		}
		got, forward := reply(epoch, names, zones{"internal"}, q, netip.Addr{})
		if forward != (got == nil) {
			t.Fatalf("forward %v, answer %v", forward, got)
		}
		if got == nil {
			return
		}
		got.Truncate(dns.MinMsgSize)
		out, err := got.Pack()
		if err != nil && len(q.Question) == 1 {
			t.Fatalf("pack: %v", err)
		}
		if len(out) > dns.MinMsgSize && len(q.Question) == 1 {
			t.Fatalf("%d bytes, want at most 512", len(out))
		}
	})
}
