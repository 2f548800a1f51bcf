// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package main

import (
	"strings"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

// TestTunnelRunRefuses has a newcomer meet what keeps a tunneler from intercepting:
// he hears what it is and what to do. Each in a network and mount namespace of its own.
func TestTunnelRunRefuses(t *testing.T) {
	is := newIssuer(t)
	p := newPlace(t)
	identity := p.path("alice.json")
	held := pki.Identity{Credential: is.credential(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"})}
	if err := pki.WriteIdentity(identity, held); err != nil {
		t.Fatal(err)
	}
	const taken = "python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 53)); print(\"up\", flush=True); time.sleep(60)' > up & until grep -q up up; do sleep 0.05; done"
	intercept := "ginnel tunnel run --identity " + identity + " --intercept "
	for _, c := range []struct {
		name, before, command string
		want                  []string
	}{
		{"not root", "", "setpriv --bounding-set=-all --inh-caps=-all " + intercept, []string{"takes root or CAP_NET_ADMIN", "hint: as root: sudo", "hint: without: --socks"}},
		{
			"port 53 taken", taken,
			intercept + "--dns 127.0.0.1:53",
			[]string{"resolver: listen tcp 127.0.0.1:53: bind: address already in use", "hint: another process listens at 127.0.0.1:53; `ss -ltunp sport = 53`", "hint: all of 127.0.0.0/8 is this host's: 127.0.0.2:53"},
		},
		{
			"proxy's port taken", taken, "ginnel tunnel run --identity " + identity + " --socks 127.0.0.1:53",
			[]string{"socks: listen tcp 127.0.0.1:53: bind: address already in use", "hint: another process listens at 127.0.0.1:53; `ss -ltunp sport = 53`"},
		},
		{
			"port of metrics taken", taken, "ginnel tunnel run --identity " + identity + " --socks 127.0.0.1:0 --metrics 127.0.0.1:53",
			[]string{"--metrics: listen tcp 127.0.0.1:53", "hint: another process listens at 127.0.0.1:53"},
		},
		{"no such address", "", intercept + "--dns 192.0.2.1:53", []string{"cannot assign requested address", "hint: this host has no such address"}},
		{"low port", "", "setpriv --bounding-set=-all --inh-caps=-all ginnel tunnel run --identity " + identity + " --dns 127.0.0.1:53", []string{"permission denied", "hint: ports below 1024"}},
		{"range taken", "ip link add vpn0 type veth peer name vpn1; ip addr add 100.70.0.1/16 dev vpn0", intercept, []string{"interface vpn0 has 100.70.0.1/16", "hint: give --range 100.112.0.0/12"}},
		{"route taken", "ip link add vpn0 type veth peer name vpn1; ip link set vpn0 up; ip route add 100.64.0.0/10 dev vpn0", intercept, []string{"a route in table 254 by interface vpn0 has 100.64.0.0/10", "hint: give --range"}},
		{
			"resolv.conf on a read-only file system", "mount --bind /etc /etc; mount -o remount,bind,ro /etc", intercept + "--dns 127.0.0.1:53 --host-dns file",
			[]string{"host DNS: /etc/resolv.conf cannot be changed", "hint: `lsattr`", "hint: or leave out --host-dns, and have programs ask 127.0.0.1:53"},
		},
		{"no systemd-resolved", "mount -t tmpfs none /run", intercept + "--dns 127.0.0.1:53 --host-dns resolved", []string{"host DNS: systemd-resolved: system bus", "hint: give --host-dns file"}},
		{"port of host DNS", "", intercept + "--dns 127.0.0.1:5353 --host-dns file", []string{"our resolver must answer at port 53, not at 127.0.0.1:5353"}},
		{"gateway for nobody", "", "ginnel tunnel run --identity " + identity + " --socks 127.0.0.1:0 --gateway 10.0.0.0/8", []string{"--gateway says whom --intercept serves"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := p.in(t)
			script := "ip link set lo up; " + c.before + "\n" + c.command + "; s=$?; ip route show table local proto 103; kill %1 2>/dev/null; exit $s"
			status, stdout, stderr := p.try("", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", script)
			if status == 0 || stdout != "" {
				t.Errorf("status %d, %q", status, stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in\n%s", want, stderr)
				}
			}
		})
	}
}
