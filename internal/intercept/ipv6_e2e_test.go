// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package intercept

import (
	"net/netip"
	"testing"
)

// TestE2E_IPv6 is for real IPv6 addresses what the tests around it are for IPv4.
func TestE2E_IPv6(t *testing.T) {
	for _, route := range []string{"", "default"} {
		t.Run("route "+route, func(t *testing.T) {
			t.Parallel()
			h, lan, stranger, far := newHost(t), newHost(t), newHost(t), newHost(t)
			wire(h, "fd00:1::1/64", lan, "fd00:1::2/64")
			wire(h, "fd00:2::1/64", stranger, "fd00:2::2/64")
			wire(h, "fd00:3::1/64", far, "fd00:3::2/64")
			lan.run("ip", "route", "add", "default", "via", "fd00:1::1")
			stranger.run("ip", "route", "add", "default", "via", "fd00:2::1")
			far.run("ip", "route", "add", "default", "via", "fd00:3::1")
			if route != "" {
				h.run("ip", "route", "add", route, "via", "fd00:3::2")
			}
			far.run("ip", "addr", "add", "2001:db8:20:5::1/128", "dev", "lo")
			far.serve("real", "91", "85")
			h.run("ip", "route", "add", "2001:db8:20:5::/64", "via", "fd00:3::2")
			h.serve("server", "92")
			h.run("ip", "addr", "add", "2001:db8:20:5::5/128", "dev", "lo", "nodad") // not of the interface by which lan comes
			before := h.state()
			o := everything
			o.Gateway = []netip.Prefix{netip.MustParsePrefix("fd00:1::/64")}
			c := h.start(o)
			c.wantReady()
			for _, who := range []*host{h, lan} {
				for _, at := range []string{"[2001:db8:20::1]:80", "[2001:db8:20:ffff:ffff:ffff:ffff:ffff]:90", "[2001:db8:20:5::1]:1234", "[2001:db8::7]:9000"} {
					want(t, who.name+" "+at, who.ask(at), "caught "+at)
				}
				for _, at := range []string{"[2001:db8:20::1]:53", "[2001:db8:20:5::1]:5353"} {
					want(t, who.name+" udp "+at, who.send(at, 3000), "caught "+at+" 3000")
				}
			}
			want(t, "a port that is a prefix's only", h.ask("[2001:db8:20:5::1]:91"), "caught [2001:db8:20:5::1]:91")
			want(t, "tunneler", c.tell(order{Dial: "[2001:db8:20:5::1]:85"}), "real")
			want(t, "a server of this host", far.ask("[fd00:3::1]:92"), "server")
			want(t, "a datagram to it", far.send("[fd00:3::1]:92", 100), "server 100")
			want(t, "at an address that a target holds", lan.ask("[2001:db8:20:5::5]:92"), "server")
			h.run("ip", "addr", "add", "2001:db8:20:5::6/128", "dev", "lo", "nodad")
			lan.until("at one that is new", func() string { return lan.ask("[2001:db8:20:5::6]:92") }, "server")
			if !stranger.refuses("[2001:db8:20::1]:80") {
				t.Error("a host that is not named is served")
			}
			c.End()
			want(t, "state", h.state(), before)
			c = h.start(everything)
			c.wantReady()
			c.Kill()
			if h.state() == before {
				t.Fatal("a killed process left nothing: this tests nothing")
			}
			h.startText("cleanup")
			want(t, "state", h.state(), before)
		})
	}
}

// TestE2E_IPv6IsOff has the system know no IPv6: the rest is intercepted.
func TestE2E_IPv6IsOff(t *testing.T) {
	h := newHost(t)
	h.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.lo.disable_ipv6=1")
	c := h.start(where)
	c.wantReady()
	want(t, "set", c.tell(order{Targets: everything.Targets}), "5 wide ranges and real addresses, tcp 2001:db8::7 9000-9999 for one, are not intercepted: IPv6 is switched off")
	want(t, "IPv4", h.ask("10.20.0.1:80"), "caught 10.20.0.1:80")
}
