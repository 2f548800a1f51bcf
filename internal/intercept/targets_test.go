// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func target(protocol, prefix string, first, last uint16) Target {
	return Target{protocol, netip.MustParsePrefix(prefix), first, last}
}

func TestPlan(t *testing.T) {
	pool := netip.MustParsePrefix("100.64.0.0/10")
	for _, test := range []struct {
		name      string
		targets   []Target
		listeners string
		redirect  string
		problem   string
	}{
		{"nothing", nil, "[]", "[]", ""},
		{"a port of a name", []Target{target("tcp", "100.64.0.2/32", 80, 80)}, "[100.64.0.2:80]", "[]", ""},
		{
			"services that share a name and ports",
			[]Target{target("tcp", "100.64.0.2/32", 80, 81), target("tcp", "100.64.0.2/32", 81, 82), target("tcp", "100.64.0.2/32", 80, 80)},
			"[100.64.0.2:80 100.64.0.2:81 100.64.0.2:82]", "[]", "",
		},
		{"UDP of a name", []Target{target("udp", "100.64.0.2/32", 53, 53)}, "udp [100.64.0.2:53]", "[]", ""},
		{"as many as have sockets", []Target{target("tcp", "100.64.0.2/32", 1, 0)}, "[]", "[]", "not a prefix with a range"},
		{"one more", []Target{target("tcp", "100.64.0.2/32", 1, 257)}, "[]", "[tcp 100.64.0.2 1-257]", ""},
		{
			"wide and narrow of one name",
			[]Target{target("tcp", "100.64.0.2/32", 1, 65535), target("tcp", "100.64.0.2/32", 443, 443)},
			"[]", "[tcp 100.64.0.2 1-65535]", "",
		},
		{
			"one in the other",
			[]Target{target("tcp", "10.20.0.0/16", 80, 90), target("tcp", "10.0.0.0/8", 85, 100), target("tcp", "10.20.0.7/32", 1, 65535)},
			"[]", "[tcp 10.0.0.0/8 85-100 tcp 10.20.0.0/16 80-84 tcp 10.20.0.7 1-79 tcp 10.20.0.7 101-65535]", "",
		},
		{
			"protocols have nothing in common",
			[]Target{target("tcp", "10.20.0.0/16", 53, 53), target("udp", "10.20.0.0/16", 53, 53)},
			"[]", "[tcp 10.20.0.0/16 53 udp 10.20.0.0/16 53]", "",
		},
		{
			"IPv6",
			[]Target{target("tcp", "fd00::/64", 80, 90), target("tcp", "10.20.0.0/16", 80, 80), target("tcp", "fd00::7/128", 85, 95)},
			"[]", "[tcp 10.20.0.0/16 80 tcp fd00::/64 80-90 tcp fd00::7 91-95]", "",
		},
		{"IPv6 loopback", []Target{target("tcp", "::1/128", 80, 80)}, "[]", "[]", "loopback"},
		{"IPv6 of one link", []Target{target("tcp", "fe80::1/128", 80, 80)}, "[]", "[]", "link-local"},
		{"synthetic range", []Target{target("tcp", "100.64.0.0/16", 80, 80)}, "[]", "[]", "stand for names"},
		{"around it", []Target{target("tcp", "100.0.0.0/8", 80, 80)}, "[]", "[]", "stand for names"},
		{"loopback", []Target{target("tcp", "127.0.0.1/32", 80, 80)}, "[]", "[]", "loopback"},
		{"multicast", []Target{target("udp", "224.0.0.251/32", 5353, 5353)}, "[]", "[]", "multicast"},
		{"everything", []Target{target("tcp", "0.0.0.0/0", 80, 80)}, "[]", "[]", "overlaps"},
		{"host bits", []Target{{"tcp", netip.MustParsePrefix("10.20.0.1/16"), 80, 80}}, "[]", "[]", "not a prefix"},
		{"protocol", []Target{target("sctp", "10.20.0.0/16", 80, 80)}, "[]", "[]", "want tcp or udp"},
	} {
		p, err := makePlan(pool, test.targets)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		own := fmt.Sprint(p.listeners)
		if len(p.packets) > 0 {
			own = "udp " + fmt.Sprint(p.packets)
		}
		if own != test.listeners || fmt.Sprint(p.transparent) != test.redirect ||
			(problem == "") != (test.problem == "") || !strings.Contains(problem, test.problem) {
			t.Errorf("%s: got %v %v %q, want %s %s %q", test.name, p.listeners, p.transparent, problem, test.listeners, test.redirect, test.problem)
		}
		for _, at := range p.listeners {
			if !p.takes(at) {
				t.Errorf("%s: takes(%s) is wrong", test.name, at)
			}
		}
	}
}

// TestPlan_IsTheSameTrafficWithoutOverlaps compares with the union of targets, port
// by port, on a few addresses and ports.
func TestPlan_IsTheSameTrafficWithoutOverlaps(t *testing.T) {
	pool := netip.MustParsePrefix("100.64.0.0/10")
	rapid.Check(t, func(r *rapid.T) {
		var all []Target
		for range rapid.IntRange(0, 8).Draw(r, "targets") {
			addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 7).Draw(r, "address"))})
			prefix, _ := addr.Prefix(rapid.IntRange(28, 32).Draw(r, "bits"))
			first := uint16(rapid.IntRange(1, 12).Draw(r, "first"))
			all = append(all, Target{"tcp", prefix, first, uint16(rapid.IntRange(int(first), 12).Draw(r, "last"))})
		}
		p, err := makePlan(pool, all)
		if err != nil {
			r.Fatal(err)
		}
		slices.Reverse(all)
		if again, _ := makePlan(pool, all); !slices.Equal(again.transparent, p.transparent) {
			r.Fatalf("order matters: %v, %v", p.transparent, again.transparent)
		}
		covers := func(list []Target, addr netip.Addr, port uint16) (count int) {
			for _, x := range list {
				if x.Prefix.Contains(addr) && x.First <= port && port <= x.Last {
					count++
				}
			}
			return count
		}
		for low := range byte(16) {
			for port := uint16(1); port <= 13; port++ {
				addr := netip.AddrFrom4([4]byte{10, 0, 0, low})
				in, out := covers(all, addr, port), covers(p.transparent, addr, port)
				if out > 1 || (in > 0) != (out > 0) || p.takes(netip.AddrPortFrom(addr, port)) != (in > 0) {
					r.Fatalf("%s:%d is in %d targets and in %d of the plan\n%v\n%v", addr, port, in, out, all, p.transparent)
				}
			}
		}
	})
}
