// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package intercept

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ginnel/ginnel/internal/testhost"
)

// to gives a target: "tcp 10.20.0.0/16 1-65535".
func to(text string) Target {
	var t Target
	var at string
	if _, err := fmt.Sscanf(text, "%s %s %d-%d", &t.Protocol, &at, &t.First, &t.Last); err != nil {
		panic(err)
	}
	t.Prefix = netip.MustParsePrefix(at)
	return t
}

func targets(texts ...string) []Target {
	var all []Target
	for _, text := range texts {
		all = append(all, to(text))
	}
	return all
}

var shared = netip.MustParsePrefix("100.64.0.0/10")

// where is the least: one port of one synthetic address.
var where = order{Range: shared, Targets: targets("tcp 100.64.7.7/32 443-443")}

var elsewhere = order{Range: netip.MustParsePrefix("198.18.0.0/15"), Targets: targets("tcp 198.18.7.7/32 443-443")}

// everything is one of each kind.
var everything = order{Range: shared, Targets: targets(
	"tcp 100.64.7.7/32 443-443", "tcp 100.64.7.8/32 1-65535", "udp 100.64.7.7/32 53-53",
	"tcp 10.20.0.0/16 80-90", "tcp 10.20.5.0/24 1-65535", "udp 10.20.0.0/16 1-65535", "tcp 192.0.2.7/32 9000-9999",
	"tcp 2001:db8:20::/48 80-90", "tcp 2001:db8:20:5::/64 1-65535", "udp 2001:db8:20::/48 1-65535", "tcp 2001:db8::7/128 9000-9999",
)}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want && (want == "" || !strings.Contains(got, want)) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestE2E_InterceptAndUndo(t *testing.T) {
	h := newHost(t)
	before := h.state()
	c := h.start(where)
	c.wantReady()
	want(t, "name", h.ask("100.64.7.7:443"), "caught 100.64.7.7:443")
	want(t, "other port", h.ask("100.64.7.7:444"), "refused")
	want(t, "other address", h.ask("100.64.7.8:443"), "refused")
	if got := h.state(); strings.Contains(got, "ginnel") || strings.Contains(got, "6717") {
		t.Errorf("more was changed than a route:\n%s", got)
	}
	c.End()
	want(t, "state", h.state(), before)
}

// TestE2E_WideRangesAndRealAddresses is for programs of this host, with every
// strictness of reverse path filtering, with and without a route to the addresses.
func TestE2E_WideRangesAndRealAddresses(t *testing.T) {
	for _, test := range []struct{ filter, route string }{
		{"0", ""}, {"1", ""}, {"2", "default"}, {"1", "default"},
	} {
		t.Run("rp_filter="+test.filter+" "+test.route, func(t *testing.T) {
			t.Parallel()
			h, far := newHost(t), newHost(t)
			wire(h, "172.16.0.1/24", far, "172.16.0.2/24")
			if test.route != "" {
				h.run("ip", "route", "add", test.route, "via", "172.16.0.2")
				far.run("ip", "addr", "add", "10.20.0.1/32", "dev", "lo")
				far.serve("real", "91")
			}
			h.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter="+test.filter)
			before := h.state()
			c := h.start(everything)
			c.wantReady()
			for _, at := range []string{
				"100.64.7.7:443", "100.64.7.8:1", "100.64.7.8:65535", "10.20.0.1:80", "10.20.255.255:90", "10.20.5.9:1234", "192.0.2.7:9000",
			} {
				want(t, at, h.ask(at), "caught "+at)
			}
			for _, at := range []string{"100.64.7.7:53", "10.20.0.1:53", "10.20.5.1:5353", "10.20.5.1:53"} {
				want(t, "udp "+at, h.send(at, 100), "caught "+at+" 100")
			}
			want(t, "large datagram", h.send("10.20.0.1:53", 60000), "caught 10.20.0.1:53 60000")
			if test.route != "" {
				want(t, "port that is not intercepted", h.ask("10.20.0.1:91"), "real")
			} else if !h.refuses("10.20.0.1:91") {
				t.Error("a port that is not intercepted is")
			}
			c.End()
			want(t, "state", h.state(), before)
		})
	}
}

// TestL91_ResetWithin100ms has the tunneler reset connections that it knows to fail
// when it accepts them: programs of this host and of others hear so at once, and by a
// reset, whatever socket took the connection. The best of some counts, since the
// machine may be busy.
func TestL91_ResetWithin100ms(t *testing.T) {
	h, lan := newHost(t), newHost(t)
	wire(h, "172.16.1.1/24", lan, "172.16.1.2/24")
	wire(h, "fd00:1::1/64", lan, "fd00:1::2/64")
	lan.run("ip", "route", "add", "default", "via", "172.16.1.1")
	lan.run("ip", "route", "add", "default", "via", "fd00:1::1")
	o := everything
	o.Gateway = []netip.Prefix{netip.MustParsePrefix("172.16.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}
	o.Targets = append(slices.Clone(o.Targets), to("tcp 100.64.7.7/32 9999-9999"))
	h.start(o).wantReady()
	for _, who := range []*host{h, lan} {
		for _, at := range []string{"100.64.7.7", "100.64.7.8", "192.0.2.7", "2001:db8::7"} { // own socket, wide range, real
			got := who.run("python3", "-c", `
import socket, sys, time
best = 9
for _ in range(10):
    try:
        s = socket.create_connection((sys.argv[1], 9999), 20)
        began = time.monotonic()
        print("no reset: read", s.recv(1)) # or the reset came before connect had returned
    except ConnectionResetError: best = min(best, time.monotonic() - began) if "began" in dir() else 0
print("in time" if best < 0.1 else "after %f s" % best)
`, at)
			want(t, who.name+" "+at, strings.TrimSpace(got), "in time")
		}
	}
	for range 3 {
		curl := lan.command("curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "10", "http://192.0.2.7:9999/")
		out, _ := curl.CombinedOutput()
		if code := curl.ProcessState.ExitCode(); !slices.Contains([]int{7, 55, 56}, code) {
			t.Errorf("curl ends with %d, %s; want a reset", code, out)
		}
	}
}

// TestE2E_OwnTrafficIsNotIntercepted has a service take the very address and
// port at which a router listens.
func TestE2E_OwnTrafficIsNotIntercepted(t *testing.T) {
	h, router := newHost(t), newHost(t)
	wire(h, "10.20.0.1/24", router, "10.20.0.2/24")
	router.serve("router", "85")
	c := h.start(everything)
	c.wantReady()
	want(t, "program", h.ask("10.20.0.2:85"), "caught 10.20.0.2:85")
	want(t, "tunneler", c.tell(order{Dial: "10.20.0.2:85"}), "router")
	want(t, "nobody there", c.tell(order{Dial: "10.20.0.2:86"}), "refused")
	want(t, "synthetic", c.tell(order{Dial: "100.64.7.7:443"}), "stand for names")
	want(t, "the host's own address", h.ask("10.20.0.1:85"), "caught 10.20.0.1:85")
}

// TestE2E_AnswersAreNotIntercepted has hosts of an intercepted network use servers
// of this host, and through it those of others: the ports that answers go to are
// the network's, too.
func TestE2E_AnswersAreNotIntercepted(t *testing.T) {
	for _, forward := range []string{"0", "1"} {
		t.Run("ip_forward="+forward, func(t *testing.T) {
			t.Parallel()
			h, far, beyond := newHost(t), newHost(t), newHost(t)
			wire(h, "10.20.5.1/24", far, "10.20.5.9/24")
			wire(h, "172.16.1.1/24", beyond, "172.16.1.2/24")
			far.run("ip", "route", "add", "default", "via", "10.20.5.1")
			beyond.run("ip", "route", "add", "default", "via", "172.16.1.1")
			h.run("sysctl", "-qw", "net.ipv4.ip_forward="+forward)
			h.serve("server", "91")
			beyond.serve("beyond", "91")
			o := everything
			o.Gateway = []netip.Prefix{netip.MustParsePrefix("10.20.5.0/24"), netip.MustParsePrefix("172.16.1.0/24")}
			h.start(o).wantReady()
			for range 2 {
				want(t, "a server of this host", far.ask("172.16.1.1:91"), "server")
				want(t, "at an address that a target holds", far.ask("10.20.5.1:91"), "server")
				want(t, "a datagram to it", far.sendFor("3", "10.20.5.1:91", 100), "server 100")
				want(t, "what is intercepted", h.ask("10.20.5.9:91"), "caught 10.20.5.9:91")
				want(t, "by another host", beyond.ask("10.20.5.9:91"), "caught 10.20.5.9:91")
				if forward == "1" {
					want(t, "a server beyond", far.ask("172.16.1.2:91"), "beyond")
					want(t, "a datagram to it", far.sendFor("3", "172.16.1.2:91", 100), "beyond 100")
				}
			}
		})
	}
}

// TestE2E_OlderConnectionsStay has a host of an intercepted network be connected
// before the tunneler starts; the server speaks first.
func TestE2E_OlderConnectionsStay(t *testing.T) {
	h, far := newHost(t), newHost(t)
	wire(h, "10.20.5.1/24", far, "10.20.5.9/24")
	h.run("ip", "addr", "add", "172.16.9.1/32", "dev", "lo")
	far.run("ip", "route", "add", "172.16.9.1/32", "via", "10.20.5.1")
	server := h.command("python3", "-c", `
import socket
s = socket.create_server(("172.16.9.1", 91)); print("ready", flush=True)
c, _ = s.accept(); input(); c.sendall(b"one\n"); print(c.recv(10), flush=True); input(); c.sendall(b"two\n"); input()
`)
	serving := testhost.Start(t, server)
	serving.WantReady()
	client := far.command("python3", "-c", `
import socket
c = socket.create_connection(("172.16.9.1", 91)); print("connected", flush=True); f = c.makefile()
print(f.readline().strip(), flush=True); c.sendall(b"back"); print(f.readline().strip(), flush=True)
`)
	asking := testhost.Start(t, client)
	want(t, "client", asking.Hear(), "connected")
	h.start(everything).wantReady()
	serving.Say("go on")
	want(t, "the server's first", asking.Hear(), "one")
	want(t, "the client's", serving.Hear(), "b'back'")
	serving.Say("go on")
	want(t, "the server's second", asking.Hear(), "two")
	want(t, "a new one", h.ask("10.20.5.9:91"), "caught 10.20.5.9:91")
}

// TestE2E_Gateway has programs of another host come by a route.
func TestE2E_Gateway(t *testing.T) {
	for _, filter := range []string{"0", "1"} {
		t.Run("rp_filter="+filter, func(t *testing.T) {
			t.Parallel()
			h, lan, stranger, far := newHost(t), newHost(t), newHost(t), newHost(t)
			wire(h, "172.16.1.1/24", lan, "172.16.1.2/24")
			wire(h, "172.16.2.1/24", stranger, "172.16.2.2/24")
			wire(h, "172.16.3.1/24", far, "172.16.3.2/24")
			lan.run("ip", "route", "add", "default", "via", "172.16.1.1")
			stranger.run("ip", "route", "add", "default", "via", "172.16.2.1")
			far.run("ip", "route", "add", "default", "via", "172.16.3.1")
			far.run("ip", "addr", "add", "10.20.0.1/32", "dev", "lo")
			h.run("ip", "route", "add", "10.20.0.0/16", "via", "172.16.3.2")
			far.serve("real", "80", "91")
			h.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter="+filter)
			before := h.state()
			o := everything
			o.Gateway = []netip.Prefix{netip.MustParsePrefix("172.16.1.0/24")}
			c := h.start(o)
			c.wantReady()
			for _, who := range []*host{h, lan} {
				for _, at := range []string{"100.64.7.7:443", "100.64.7.8:8080", "10.20.0.1:80", "10.20.5.9:1234", "192.0.2.7:9000"} {
					want(t, who.name+" "+at, who.ask(at), "caught "+at)
				}
				for _, at := range []string{"100.64.7.7:53", "10.20.0.1:53"} {
					want(t, who.name+" udp "+at, who.send(at, 3000), "caught "+at+" 3000") // fragments
				}
			}
			for _, at := range []string{"100.64.7.7:443", "100.64.7.8:8080", "192.0.2.7:9000"} {
				if !stranger.refuses(at) {
					t.Errorf("%s: a host that is not named is served", at)
				}
			}
			if got := stranger.sendFor("0.5", "100.64.7.7:53", 100); strings.Contains(got, "caught") {
				t.Errorf("datagram of a host that is not served: got %q", got)
			}
			c.End()
			want(t, "state", h.state(), before)
			h.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
			c = h.start(o)
			c.wantReady()
			want(t, "forwarded as before", lan.ask("10.20.0.1:91"), "real")
			want(t, "intercepted", lan.ask("10.20.0.1:80"), "caught 10.20.0.1:80")
		})
	}
}

// TestE2E_NeighboursAreNotServed has another host route the addresses to one
// that serves its own programs only.
func TestE2E_NeighboursAreNotServed(t *testing.T) {
	h, neighbour := newHost(t), newHost(t)
	wire(h, "172.16.1.1/24", neighbour, "172.16.1.2/24")
	neighbour.run("ip", "route", "add", "default", "via", "172.16.1.1")
	h.start(everything).wantReady()
	for _, at := range []string{"100.64.7.7:443", "100.64.7.8:8080"} {
		want(t, at, neighbour.ask(at), "refused")
		want(t, at, h.ask(at), "caught "+at)
	}
	if !neighbour.refuses("10.20.0.1:80") {
		t.Error("a real address is served to a neighbour")
	}
	if got := neighbour.sendFor("0.5", "100.64.7.7:53", 100); strings.Contains(got, "caught") {
		t.Errorf("datagram: got %q", got)
	}
}

// TestE2E_ChangeLeavesOthersAlone changes what is intercepted under open connections.
func TestE2E_ChangeLeavesOthersAlone(t *testing.T) {
	h := newHost(t)
	c := h.start(everything)
	c.wantReady()
	type open struct {
		at   string
		stay bool
		talk func(line string) string
	}
	all := []open{{at: "100.64.7.7:443", stay: true}, {at: "100.64.7.8:7000", stay: true}, {at: "10.20.0.1:80", stay: true}, {at: "192.0.2.7:9000"}}
	for i := range all {
		all[i].talk = h.talk(all[i].at)
		want(t, all[i].at, all[i].talk("one"), "one")
	}
	for round := range 5 {
		fewer := order{Targets: targets("tcp 100.64.7.7/32 443-443", "tcp 100.64.7.8/32 7000-7999", "tcp 10.20.0.1/32 80-80", fmt.Sprintf("tcp 192.0.2.8/32 %d-9999", 9000+round))}
		want(t, "change", c.tell(fewer), "set <nil>")
		for _, o := range all {
			got := o.talk("two")
			if o.stay {
				want(t, o.at, got, "two")
			} else if got == "two" {
				t.Errorf("%s: is carried on though nobody intercepts it", o.at)
			}
		}
		want(t, "new", h.ask("192.0.2.8:9100"), "caught 192.0.2.8:9100")
		if !h.refuses("192.0.2.7:9100") {
			t.Error("what was removed is still intercepted")
		}
		if round == 0 {
			h.run("nft", "flush", "ruleset") // as a firewall that reloads; the next change mends it
		}
	}
	want(t, "all", c.tell(order{Targets: everything.Targets}), "set <nil>")
	want(t, "back", h.ask("192.0.2.7:9100"), "caught 192.0.2.7:9100")
}

// TestE2E_NewNamesLeaveTheTable has names of wide ranges come and go one by one: the
// kernel's table stays and only its set changes, whoever has flushed the rules meanwhile.
func TestE2E_NewNamesLeaveTheTable(t *testing.T) {
	h := newHost(t)
	c := h.start(everything)
	c.wantReady()
	table := func() string {
		return regexp.MustCompile(`# handle \d+`).FindString(h.run("nft", "-a", "list", "table", "ip", "ginnel"))
	}
	before := table()
	for i := range 20 {
		name := to(fmt.Sprintf("tcp 100.64.9.%d/32 1-65535", i))
		want(t, "add", c.tell(order{Add: []Target{name}}), "change <nil>")
		at := fmt.Sprintf("100.64.9.%d:%d", i, 1000+i)
		want(t, at, h.ask(at), "caught "+at)
		if i > 0 {
			want(t, "replace", c.tell(order{Remove: []Target{name}, Add: []Target{to("tcp 100.64.9.0/32 1-65535")}}), "change <nil>")
			want(t, at, h.ask(at), "refused")
		}
		want(t, "what was there", h.ask("100.64.9.0:17"), "caught 100.64.9.0:17")
	}
	if got := table(); got != before || before == "" {
		t.Errorf("the table is %q, was %q: it was made anew", got, before)
	}
	h.run("nft", "flush", "ruleset")
	want(t, "after a flush", c.tell(order{Add: targets("tcp 100.64.9.1/32 1-65535")}), "change <nil>")
	for _, at := range []string{"100.64.9.0:1", "100.64.9.1:1", "10.20.0.1:80"} {
		want(t, at, h.ask(at), "caught "+at)
	}
}

// TestE2E_TakenAwayByOthers has other programs remove what we made.
func TestE2E_TakenAwayByOthers(t *testing.T) {
	h := newHost(t)
	c := h.start(everything)
	c.wantReady()
	state := h.state()
	for _, command := range []string{ // a firewall that is loaded anew; network managers
		"nft flush ruleset", "ip rule del pref 1030", "ip -6 rule del pref 1030", "ip route flush table 6717", "ip route del local 100.64.0.0/10 table local",
	} {
		t.Run(command, func(t *testing.T) {
			h := &host{t, h.name}
			h.run(strings.Fields(command)...) // it fails where there is nothing to take away
			h.until("state", h.state, state)
			for _, at := range []string{"100.64.7.7:443", "100.64.7.8:1", "10.20.0.1:80", "[2001:db8::7]:9000"} {
				want(t, at, h.ask(at), "caught "+at)
			}
		})
	}
}

// tproxyPort is the only thing that differs from one run to the next.
var tproxyPort = regexp.MustCompile(`(127\.0\.0\.1|\[::1\]):\d+`)

func TestL90_KilledAndStartedAgain(t *testing.T) {
	h := newHost(t)
	before := h.state()
	var ours string
	for range 3 {
		c := h.start(everything)
		c.wantReady()
		now := tproxyPort.ReplaceAllString(h.state(), "$1:PORT")
		if ours == "" {
			ours = now
		}
		want(t, "state of a tunneler", now, ours)
		want(t, "name", h.ask("100.64.7.7:443"), "caught 100.64.7.7:443")
		want(t, "real address", h.ask("10.20.0.1:80"), "caught 10.20.0.1:80")
		c.Kill()
		if h.state() == before {
			t.Fatal("a killed process left nothing: this tests nothing")
		}
	}
	other := h.start(elsewhere)
	other.wantReady()
	if got := h.state(); strings.Contains(got, "100.64.0.0") || strings.Contains(got, "ginnel") || strings.Contains(got, "6717") {
		t.Errorf("something of the killed process is still there:\n%s", got)
	}
	other.Kill()
	want(t, "cleanup", h.startText("cleanup").first, "1 <nil>")
	want(t, "state", h.state(), before)
	h.start(everything).Kill()
	if got := h.startText("cleanup").first; !strings.HasSuffix(got, "<nil>") || strings.HasPrefix(got, "1 ") {
		t.Errorf("cleanup says %q, want all of it removed", got)
	}
	want(t, "state", h.state(), before)
	want(t, "nothing left", h.startText("cleanup").first, "0 <nil>")
}

func TestE2E_OthersTableIsLeftAlone(t *testing.T) {
	h := newHost(t)
	h.run("nft", "add", "table", "ip", "ginnel")
	before := h.state()
	c := h.start(everything)
	want(t, "table of our name", c.first, "no tunneler made")
	want(t, "state", h.state(), before)
	h.start(where).End() // needs none
	want(t, "state", h.state(), before)
}

func TestE2E_SecondTunnelerIsRefused(t *testing.T) {
	h := newHost(t)
	h.start(everything).wantReady()
	before := h.state()
	for _, o := range []order{where, everything, elsewhere} {
		want(t, "second", h.start(o).first, "another tunneler")
	}
	want(t, "cleanup", h.startText("cleanup").first, "another tunneler")
	want(t, "state", h.state(), before)
	want(t, "the first", h.ask("10.20.0.1:80"), "caught 10.20.0.1:80")
}

func TestL89_RangeInUse(t *testing.T) {
	for _, test := range []struct{ name, command, want string }{
		{"interface", "ip addr add 100.70.0.1/16 dev vpn0", "interface vpn0 has 100.70.0.1/16; 100.112.0.0/12 is free"},
		{"route", "ip route add 100.80.0.0/16 dev vpn0", "a route in table 254 by interface vpn0 has 100.80.0.0/16; 100.112.0.0/12 is free"},
		{"other table", "ip route add 100.80.0.0/16 dev vpn0 table 52", "a route in table 52 by interface vpn0"},
		{"blackhole", "ip route add blackhole 100.64.0.0/10", "a route in table 254 has 100.64.0.0/10"},
		{"default routes", "ip route add 0.0.0.0/1 dev vpn0", "ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(t)
			h.run("ip", "link", "add", "vpn0", "type", "veth", "peer", "name", "vpn1")
			h.run("ip", "link", "set", "vpn0", "up")
			h.run(strings.Fields(test.command)...)
			before := h.state()
			want(t, "child", h.start(where).first, test.want)
			if test.want != "ready" {
				want(t, "state", h.state(), before)
			}
		})
	}
}

func TestE2E_WithoutPrivileges(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip("setpriv is not installed")
	}
	h := newHost(t)
	c := h.start(where, "setpriv", "--bounding-set=-all", "--inh-caps=-all")
	if !strings.Contains(c.first, "CAP_NET_ADMIN") || !strings.Contains(c.first, "--socks") {
		t.Errorf("child says %q, want what is missing and the way without", c.first)
	}
}

// TestE2E_ManyTargets fills the kernel's set to its bound and beyond.
func TestE2E_ManyTargets(t *testing.T) {
	h := newHost(t)
	o := order{Range: shared}
	for i := range maxTargets {
		addr := netip.AddrFrom4([4]byte{10, 20, byte(i >> 8), byte(i)})
		o.Targets = append(o.Targets, Target{"tcp", netip.PrefixFrom(addr, 32), uint16(1000 + i), uint16(1000 + i + 500)})
	}
	c := h.start(order{Range: shared, Targets: o.Targets[:1]})
	c.wantReady()
	want(t, "all", c.tell(order{Targets: o.Targets}), "set <nil>")
	last := fmt.Sprintf("10.20.%d.%d:%d", (maxTargets-1)>>8, (maxTargets-1)&255, 1000+maxTargets-1)
	want(t, "last", h.ask(last), "caught "+last)
	o.Targets = append(o.Targets, to("tcp 10.21.0.0/16 80-80"))
	want(t, "one more", c.tell(order{Targets: o.Targets}), "more than the 4096")
	want(t, "last", h.ask(last), "caught "+last)
}

// TestE2E_HalfOpenScan has a host begin thousands of connections that it never
// completes; others are served, on sockets of their own and on the shared one.
func TestE2E_HalfOpenScan(t *testing.T) {
	h, scanner, lan := newHost(t), newHost(t), newHost(t)
	wire(h, "172.16.1.1/24", scanner, "172.16.1.2/24")
	wire(h, "172.16.2.1/24", lan, "172.16.2.2/24")
	scanner.run("ip", "route", "add", "default", "via", "172.16.1.1")
	lan.run("ip", "route", "add", "default", "via", "172.16.2.1")
	for _, command := range []string{ // it drops what would complete or reset a connection
		"add table ip scan", "add chain ip scan out { type filter hook output priority 0 ; }",
		"add rule ip scan out tcp flags & (ack|rst) != 0 drop",
	} {
		scanner.run("nft", command)
	}
	o := everything
	o.Gateway = []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}
	h.start(o).wantReady()
	begun := scanner.run("python3", "-c", `
import socket
begun = 0
for at in [("100.64.7.7", 443), ("192.0.2.7", 9000)]:
    for _ in range(3000):
        s = socket.socket(); s.setblocking(False)
        try: s.connect(at)
        except BlockingIOError: begun += 1
        s.close()
print(begun)
`)
	want(t, "connections begun", strings.TrimSpace(begun), "6000")
	for range 2 {
		for _, at := range []string{"100.64.7.7:443", "192.0.2.7:9000", "10.20.0.1:80"} {
			want(t, at, lan.ask(at), "caught "+at)
			want(t, at, h.ask(at), "caught "+at)
		}
	}
}
