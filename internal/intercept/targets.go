// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Target is traffic to be intercepted: what goes to the ports from First to
// Last, both included, of the addresses of Prefix.
type Target struct {
	Protocol    string // "tcp" or "udp"
	Prefix      netip.Prefix
	First, Last uint16
}

// String gives "tcp 10.20.0.0/16 1-65535".
func (t Target) String() string {
	at := t.Prefix.String()
	if t.Prefix.IsSingleIP() {
		at = t.Prefix.Addr().String()
	}
	return fmt.Sprintf("%s %s %s", t.Protocol, at, ports{t.First, t.Last})
}

// socketPorts is how many ports of one address are served by a socket each;
// more are taken by the transparent socket that serves any number.
const socketPorts = 256

// plan says by which means targets are served. Everything in it is disjoint
// and sorted, so equal targets in any order give equal plans.
type plan struct {
	listeners   []netip.AddrPort // by a TCP socket of its own
	packets     []netip.AddrPort // by a UDP socket of its own
	transparent []Target         // by the transparent sockets
}

// makePlan divides targets: few ports of an address of pool get sockets of their
// own, which take nothing of the system but a route; all else, wide ranges and
// addresses outside of pool, is for the transparent sockets. The error names
// targets that are left out.
func makePlan(pool netip.Prefix, targets []Target) (plan, error) {
	var p plan
	var problems []error
	wanted := map[string]map[netip.Prefix][]ports{"tcp": {}, "udp": {}}
	for _, t := range targets {
		if err := t.check(pool); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", t, err))
			continue
		}
		wanted[t.Protocol][t.Prefix] = append(wanted[t.Protocol][t.Prefix], ports{t.First, t.Last})
	}
	for protocol, own := range map[string]*[]netip.AddrPort{"tcp": &p.listeners, "udp": &p.packets} {
		for prefix, ranges := range wanted[protocol] {
			merged := merge(ranges)
			if !pool.Contains(prefix.Addr()) || size(merged) > socketPorts {
				continue
			}
			delete(wanted[protocol], prefix)
			for _, r := range merged {
				for port := int(r.first); port <= int(r.last); port++ {
					*own = append(*own, netip.AddrPortFrom(prefix.Addr(), uint16(port)))
				}
			}
		}
		slices.SortFunc(*own, netip.AddrPort.Compare)
	}
	for _, protocol := range []string{"tcp", "udp"} {
		p.transparent = append(p.transparent, disjoint(protocol, wanted[protocol])...)
	}
	return p, errors.Join(problems...)
}

// takes reports whether a connection to at is served.
func (p *plan) takes(at netip.AddrPort) bool {
	if _, found := slices.BinarySearchFunc(p.listeners, at, netip.AddrPort.Compare); found {
		return true
	}
	return slices.ContainsFunc(p.transparent, func(t Target) bool {
		return t.Protocol == "tcp" && t.Prefix.Contains(at.Addr()) && t.First <= at.Port() && at.Port() <= t.Last
	})
}

// check says why t cannot be intercepted.
func (t Target) check(pool netip.Prefix) error {
	switch {
	case t.Protocol != "tcp" && t.Protocol != "udp":
		return fmt.Errorf("protocol %q: want tcp or udp", t.Protocol)
	case !t.Prefix.IsValid() || t.Prefix != t.Prefix.Masked() || t.First == 0 || t.First > t.Last:
		return errors.New("not a prefix with a range of ports")
	case pool.Contains(t.Prefix.Addr()) && t.Prefix.IsSingleIP():
		return nil
	case t.Prefix.Overlaps(pool):
		return fmt.Errorf("overlaps %s, whose addresses stand for names: choose another --range", pool)
	case Never(t.Prefix):
		return fmt.Errorf("loopback, link-local IPv6, multicast and prefixes of less than %d bits are not intercepted", widestRoute)
	}
	return nil
}

// Never reports whether addresses are not intercepted, whatever the range.
func Never(prefix netip.Prefix) bool {
	return prefix.Bits() < widestRoute || slices.ContainsFunc(nobodys, prefix.Overlaps)
}

// nobodys are addresses that no service can have.
var nobodys = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast and broadcast
	netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"),
}

// familyNumber gives 0 for IPv4 and 1 for IPv6.
func familyNumber(addr netip.Addr) int {
	if addr.Is4() {
		return 0
	}
	return 1
}

// ofFamily gives the targets of one family, by its number.
func ofFamily(targets []Target, number int) []Target {
	return slices.DeleteFunc(slices.Clone(targets), func(t Target) bool { return familyNumber(t.Prefix.Addr()) != number })
}

// disjoint gives the same traffic as wanted in targets that do not overlap:
// the kernel's sets refuse those that do. Of two prefixes one lies in the other
// or they have nothing in common, so each is left the ports that none around it
// has.
func disjoint(protocol string, wanted map[netip.Prefix][]ports) []Target {
	var all []Target
	for prefix, ranges := range wanted {
		var around []ports
		for bits := widestRoute; bits < prefix.Bits(); bits++ {
			outer, _ := prefix.Addr().Prefix(bits) // fewer bits than prefix has: it is valid
			around = append(around, wanted[outer]...)
		}
		for _, r := range subtract(merge(ranges), merge(around)) {
			all = append(all, Target{protocol, prefix, r.first, r.last})
		}
	}
	slices.SortFunc(all, func(a, b Target) int { return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.First, b.First)) })
	return all
}

// ports is a range of ports, both ends included.
type ports struct{ first, last uint16 }

func (p ports) String() string {
	if p.first == p.last {
		return fmt.Sprint(p.first)
	}
	return fmt.Sprintf("%d-%d", p.first, p.last)
}

// merge gives the same ports in sorted ranges that neither overlap nor touch.
func merge(ranges []ports) []ports {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b ports) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	var merged []ports
	for _, r := range ranges {
		if n := len(merged); n > 0 && int(r.first) <= int(merged[n-1].last)+1 {
			merged[n-1].last = max(merged[n-1].last, r.last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// subtract gives the ports of ranges that are not in without. Both are merged.
func subtract(ranges, without []ports) []ports {
	var left []ports
	for _, r := range ranges {
		next := int(r.first) // the first port of r that is not decided yet
		for _, w := range without {
			if w.last < r.first || w.first > r.last {
				continue
			}
			if int(w.first) > next {
				left = append(left, ports{uint16(next), w.first - 1})
			}
			next = int(w.last) + 1
		}
		if next <= int(r.last) {
			left = append(left, ports{uint16(next), r.last})
		}
	}
	return left
}

func size(merged []ports) int {
	count := 0
	for _, r := range merged {
		count += int(r.last) - int(r.first) + 1
	}
	return count
}
