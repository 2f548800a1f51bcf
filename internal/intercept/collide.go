// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"fmt"
	"net/netip"
)

// taken is a prefix that something of the host uses.
type taken struct {
	prefix netip.Prefix
	by     string // "interface eth0", "route in table 254 to eth0"
}

// widestRoute is the shortest prefix that counts as a use of what lies in it.
// Shorter ones are ways to say "everything", as VPNs do with 0.0.0.0/1.
const widestRoute = 8

// CollisionError says that the synthetic range is in use on this host.
type CollisionError struct {
	Range, With netip.Prefix
	By          string       // what has With: an interface or a route
	Free        netip.Prefix // a range that nothing uses; zero if none was found
}

// Error names the range, what uses it, and a free one.
func (e *CollisionError) Error() string {
	text := fmt.Sprintf("range %s is in use: %s has %s", e.Range, e.By, e.With)
	if e.Free.IsValid() {
		return text + fmt.Sprintf("; %s is free", e.Free)
	}
	return text + "; found no free range, choose one by hand"
}

// collision reports which of used lies in pool or has it within.
func collision(pool netip.Prefix, used []taken) error {
	for _, t := range used {
		if t.prefix.Bits() >= widestRoute && t.prefix.Overlaps(pool) {
			return &CollisionError{Range: pool, With: t.prefix, By: t.by, Free: freeRange(used)}
		}
	}
	return nil
}

// freeRange gives a range that none of used overlaps: of the shared address
// space (RFC 6598), of the one for benchmarks (RFC 2544), or private.
func freeRange(used []taken) netip.Prefix {
	for _, space := range []struct {
		text string
		bits int // of the ranges tried in it
	}{
		{"100.64.0.0/10", 10}, {"100.64.0.0/10", 12}, {"198.18.0.0/15", 15}, {"10.0.0.0/8", 12}, {"10.0.0.0/8", 16}, {"172.16.0.0/12", 16},
	} {
		whole := netip.MustParsePrefix(space.text)
		count := 1 << (space.bits - whole.Bits())
		for i := count - 1; i >= 0; i-- { // people begin to number at the other end
			raw := whole.Addr().As4()
			offset := uint32(i) << (32 - space.bits)
			for b := range raw {
				raw[b] |= byte(offset >> (24 - 8*b))
			}
			candidate := netip.PrefixFrom(netip.AddrFrom4(raw), space.bits)
			if !overlapsAny(candidate, used) {
				return candidate
			}
		}
	}
	return netip.Prefix{}
}

func overlapsAny(candidate netip.Prefix, used []taken) bool {
	for _, t := range used {
		if t.prefix.Bits() >= widestRoute && t.prefix.Overlaps(candidate) {
			return true
		}
	}
	return false
}
