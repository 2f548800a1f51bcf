// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package programs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func TestPrograms(t *testing.T) {
	needPrograms(t)
	n := newNetwork(t)
	before := n.host.state()
	n.startNames()
	n.startFabric()
	n.startWeb()
	n.startPostgres()
	n.startSSH()
	n.site.start("Server listening", "iperf3", "--server", "--bind", "127.0.0.1", "--forceflush")
	n.service("web", "tcp:127.0.0.1:8080", "web.internal:80")
	n.service("web-secure", "tcp:127.0.0.1:8443", "web.internal:443") // another service of the same name
	n.service("dead", "tcp:127.0.0.1:1", "web.internal:81", "web.internal:82")
	n.service("db", "tcp:127.0.0.1:5432", "db.internal:5432")
	n.service("shell", "tcp:127.0.0.1:22", "ssh.internal:22")
	n.service("iperf", "tcp:127.0.0.1:5201", "iperf.internal:5201")
	n.service("iperf-udp", "udp:127.0.0.1:5201", "udp:iperf.internal:5201", "udp:10.20.0.9:5201")
	n.service("wide", "tcp:127.0.0.1:8080", "wide.internal:1-65535")
	n.service("real", "tcp:127.0.0.1:8080", "10.20.0.0/16:1-65535", "[2001:db8:20::/48]:1-65535")
	n.service("real-dead", "tcp:127.0.0.1:1", "10.21.0.0/16:1-65535", "[2001:db8:21::/48]:1-65535", "nobody.internal:1-65535")
	n.service("box", "tcp:127.0.0.1:22", "10.20.0.7:8080")          // more specific than real
	n.service("trap", "tcp:127.0.0.1:8080", "10.71.2.0/24:1-65535") // holds the address of the edge router
	n.startTunneler()
	n.host.until("the tunneler", func() error {
		_, err := n.host.try("", "curl", "-sS", "--max-time", "5", "http://web.internal/protocol")
		return err
	})
	for _, at := range []struct {
		name string
		*host
	}{{"host", n.host}, {"gateway", n.lan}} {
		t.Run(at.name, func(t *testing.T) {
			h := *at.host
			h.t = t
			for _, test := range []struct {
				name string
				run  func(h *host, n *network)
			}{
				{"dig", testDig},
				{"curl", testCurl},
				{"real addresses", testRealAddresses},
				{"refused", testRefused},
				{"psql", testPsql},
				{"ssh and scp", testSSH},
				{"iperf3", testIperf},
				{"chromium", testChromium},
				{"L85 access removed", testAccessRemoved},
			} {
				t.Run(test.name, func(t *testing.T) {
					on := h
					on.t = t
					test.run(&on, n)
				})
			}
		})
	}
	t.Run("without privileges", func(t *testing.T) { testProxies(t, n) })
	t.Run("L90 a thousand services", func(t *testing.T) { testKilledAmongMany(t, n, before) })
	t.Run("in a router", func(t *testing.T) { testBuiltIn(t, n, before) })
	t.Run("without controllers", func(t *testing.T) { testWithoutControllers(t, n, before) })
}

// want compares what a program wrote; got may have white space around it.
func (h *host) want(what, got string, err error, want string) {
	h.t.Helper()
	if err != nil || strings.TrimSpace(got) != want {
		h.t.Errorf("%s: got %q, %v; want %q", what, got, err, want)
	}
}

func testDig(h *host, _ *network) {
	for _, test := range []struct{ args, want string }{
		{"web.internal A", `status: NOERROR[\s\S]*web\.internal\.\s+10\s+IN\s+A\s+100\.`},
		{"WEB.Internal A", `WEB\.Internal\.\s+10\s+IN\s+A\s+100\.`},
		{"+tcp web.internal A", `status: NOERROR[\s\S]*\s100\.`},
		{"web.internal AAAA", `status: NOERROR[\s\S]*ANSWER: 0`},
		{"web.internal HTTPS", `status: NOERROR[\s\S]*ANSWER: 0`},
		{"nope.internal A", `status: NXDOMAIN`},
		{"elsewhere.example A", `\s192\.0\.2\.77\s`},
	} {
		out, err := h.try("", append([]string{"dig"}, strings.Fields(test.args)...)...)
		if err != nil || !regexp.MustCompile(test.want).MatchString(out) {
			h.t.Errorf("dig %s: %v: got %s, want %s", test.args, err, out, test.want)
		}
	}
}

func testCurl(h *host, n *network) {
	curl := func(args ...string) (string, error) {
		return h.try("", append([]string{"curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30"}, args...)...)
	}
	secure := []string{"--cacert", filepath.Join(n.dir, "site.pem")}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"http://web.internal/protocol"}, "HTTP/1.1 web.internal"},
		{[]string{"http://WEB.internal/protocol"}, "HTTP/1.1 WEB.internal"},
		{[]string{"--http2-prior-knowledge", "http://web.internal/protocol"}, "HTTP/2.0 web.internal"},
		{append([]string{"--http2", "https://web.internal/protocol"}, secure...), "HTTP/2.0 web.internal"},
		{append([]string{"--http1.1", "https://web.internal/protocol"}, secure...), "HTTP/1.1 web.internal"},
		{[]string{"http://wide.internal:17/protocol"}, "HTTP/1.1 wide.internal:17"},
		{[]string{"http://wide.internal:65535/protocol"}, "HTTP/1.1 wide.internal:65535"},
	} {
		got, err := curl(test.args...)
		h.want(fmt.Sprint("curl ", test.args), got, err, test.want)
	}
	big := filepath.Join(n.dir, "big-"+h.name)
	if err := os.WriteFile(big, bytes.Repeat([]byte("0123456789abcdef"), 1<<18), 0o644); err != nil {
		h.t.Fatal(err)
	}
	got, err := curl("--upload-file", big, "http://web.internal/upload")
	h.want("upload", got, err, "4194304 <nil>")
	got, err = curl("--include", "--http1.1", "--header", "Connection: Upgrade", "--header", "Upgrade: websocket",
		"--header", "Sec-WebSocket-Version: 13", "--header", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "http://web.internal/socket")
	for _, want := range []string{"101 Switching Protocols", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "WELCOME"} { // the example of RFC 6455
		if err != nil || !strings.Contains(got, want) {
			h.t.Errorf("WebSocket: got %q, %v; want %s", got, err, want)
		}
	}
}

func testRealAddresses(h *host, _ *network) {
	for _, at := range []string{"10.20.0.1:80", "10.20.255.1:8080", "10.20.0.7:80"} {
		got, err := h.try("", "curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30", "http://"+at+"/protocol")
		h.want(at, got, err, "HTTP/1.1 "+strings.TrimSuffix(at, ":80"))
	}
	got, err := h.try("", "curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30", "http://[2001:db8:20::1]:8080/protocol")
	h.want("IPv6", got, err, "HTTP/1.1 [2001:db8:20::1]:8080")
	got, err = h.try("", "timeout", "20", "bash", "-c", "head -c 7 < /dev/tcp/10.20.0.7/8080")
	h.want("the more specific service", got, err, "SSH-2.0")
	got, err = h.try("", "curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "30", "http://10.71.2.1:7001/protocol")
	h.want("the edge router's address, for a program", got, err, "HTTP/1.1 10.71.2.1:7001")
}

// testRefused goes where nobody answers: the program hears so, and at once.
func testRefused(h *host, _ *network) {
	for _, test := range []struct {
		url   string
		exits string
	}{
		{"http://web.internal:81/", "exit status (7|55|56)"}, // its server refuses
		{"http://nobody.internal/", "exit status (7|55|56)"},
		{"http://10.21.0.1/", "exit status (7|55|56)"},
		{"http://[2001:db8:21::1]/", "exit status (7|55|56)"},
		{"http://web.internal:99/", "exit status 7"}, // no service
		{"http://nope.internal/", "exit status 6"},
	} {
		for range 3 {
			_, err := h.try("", "curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "20", test.url)
			if err == nil || !regexp.MustCompile(test.exits).MatchString(err.Error()) {
				h.t.Errorf("curl %s: %v, want %s", test.url, err, test.exits)
			}
		}
	}
}

func testPsql(h *host, _ *network) {
	psql := func(query string) (string, error) {
		return h.try("", "psql", "--no-psqlrc", "--host", "db.internal", "--username", "postgres", "--tuples-only", "--no-align", "--command", query)
	}
	got, err := psql("select 6*7")
	h.want("query", got, err, "42")
	got, err = psql("select repeat('x', 1000) from generate_series(1, 2000)")
	h.want("many rows", fmt.Sprint(strings.Count(got, "x")), err, "2000000")
	_, err = psql("select nonsense")
	if err == nil || !strings.Contains(err.Error(), "does not exist") {
		h.t.Errorf("wrong query: %v", err)
	}
}

// sshOptions are those of ssh and scp.
func (n *network) sshOptions() []string {
	return []string{
		"-F", "none", "-i", filepath.Join(n.dir, "user-key"), "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes",
		"-o", "UserKnownHostsFile=" + filepath.Join(n.dir, "known_hosts"), "-o", "GlobalKnownHostsFile=none", "-o", "ConnectTimeout=30",
	}
}

func testSSH(h *host, n *network) {
	ssh := func(stdin string, args ...string) (string, error) {
		return h.try(stdin, append(append([]string{"ssh"}, n.sshOptions()...), args...)...)
	}
	got, err := ssh("hello", "root@ssh.internal", "tr a-z A-Z")
	h.want("ssh", got, err, "HELLO")
	if _, err := ssh("", "root@ssh.internal", "exit 7"); err == nil || !strings.Contains(err.Error(), "exit status 7") {
		h.t.Errorf("exit status: %v", err)
	}
	sent := make([]byte, 5<<20)
	_, _ = rand.Read(sent)
	there, back := filepath.Join(n.dir, "sent-"+h.name), filepath.Join(n.dir, "back-"+h.name)
	if err := os.WriteFile(there, sent, 0o644); err != nil {
		h.t.Fatal(err)
	}
	for _, files := range [][2]string{{there, "root@ssh.internal:" + there + ".copy"}, {"root@ssh.internal:" + there + ".copy", back}} {
		if _, err := h.try("", append(append([]string{"scp", "-q"}, n.sshOptions()...), files[0], files[1])...); err != nil {
			h.t.Error(err)
		}
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, sent) {
		h.t.Errorf("scp: %d of %d bytes came back, %v", len(got), len(sent), err)
	}
}

func testIperf(h *host, _ *network) {
	for _, more := range [][]string{nil, {"--reverse"}, {"--parallel", "4"}} {
		out, err := h.try("", append([]string{"iperf3", "--client", "iperf.internal", "--time", "1", "--json"}, more...)...)
		var report struct {
			End struct {
				Received struct{ Bytes float64 } `json:"sum_received"`
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &report)
		}
		if err != nil || report.End.Received.Bytes < 1<<20 {
			h.t.Errorf("iperf3 %v: %.0f bytes, %v", more, report.End.Received.Bytes, err)
		}
	}
	for _, more := range [][]string{nil, {"--reverse"}} {
		out, err := h.try("", append([]string{"iperf3", "--client", "iperf.internal", "--udp", "--bandwidth", "10M", "--length", "1200", "--time", "1", "--json"}, more...)...)
		var report struct {
			End struct {
				Sum struct {
					Packets float64
					Lost    float64 `json:"lost_packets"`
				}
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &report)
		}
		if err != nil || report.End.Sum.Packets < 500 || report.End.Sum.Lost > report.End.Sum.Packets/2 {
			h.t.Errorf("iperf3 --udp %v: %.0f packets of which %.0f were lost, %v", more, report.End.Sum.Packets, report.End.Sum.Lost, err)
		}
	}
}

func testChromium(h *host, n *network) {
	profile := filepath.Join(n.dir, "profile-"+h.name)
	out, err := h.try("", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--no-proxy-server", "--user-data-dir="+profile, "--dump-dom", "http://web.internal/")
	for _, want := range []string{"<title>site</title>", "script ran", "socket said PING"} {
		if err != nil || !strings.Contains(out, want) {
			h.t.Errorf("chromium: %v: got %q, want %q", err, out, want)
		}
	}
}

// testAccessRemoved takes away the right to dial: names are gone and programs that know
// an address hear so at once. It gives it back.
func testAccessRemoved(h *host, n *network) {
	at := strings.TrimSpace(h.run("dig", "+short", "web.internal"))
	gone := func() error {
		out, err := h.try("", "dig", "web.internal")
		if err == nil && !strings.Contains(out, "status: NXDOMAIN") {
			err = fmt.Errorf("still answered: %s", out)
		}
		return err
	}
	n.core.run("ginnel", "policy", "delete", "dial")
	began := time.Now()
	h.until("no such name", gone)
	if took := time.Since(began); took > 5*time.Second {
		h.t.Errorf("the name was answered for %s, want 5 s at most", took)
	}
	for _, url := range []string{"http://" + at + "/", "http://" + at + ":443/"} {
		began := time.Now()
		_, err := h.try("", "curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", "20", url)
		if err == nil || !strings.Contains(err.Error(), "exit status 7") || time.Since(began) > 5*time.Second {
			h.t.Errorf("curl %s: %v after %s, want a refusal at once", url, err, time.Since(began))
		}
	}
	n.core.run("ginnel", "policy", "create", "dial", "--kind", "dial", "--identity", "#all", "--service", "#all")
	h.until("a page once more", func() error {
		_, err := h.try("", "curl", "-sS", "--noproxy", "*", "--max-time", "5", "http://web.internal/protocol")
		return err
	})
	if got := strings.TrimSpace(h.run("dig", "+short", "web.internal")); got != at {
		h.t.Errorf("it has the address %s, had %s", got, at)
	}
}

// testWithoutControllers has the rest of the network end: the host's other names resolve
// all the same, also by a tunneler that begins then, which does not say of ours that they
// do not exist.
func testWithoutControllers(t *testing.T, n *network, before string) {
	h := *n.host
	h.t = t
	dig := func(name, want string) {
		t.Helper()
		if out, err := h.try("", "dig", name); err != nil || !strings.Contains(out, want) {
			t.Errorf("dig %s: %v: got %s, want %s", name, err, out, want)
		}
	}
	n.identity = "alice.json" // the other one has no edge router but the one that was the tunneler, too
	n.tunneler.kill()
	n.startTunneler()
	h.until("a page", func() error {
		_, err := h.try("", "curl", "-sS", "--noproxy", "*", "--max-time", "10", "http://web.internal/protocol")
		return err
	})
	n.controller.kill()
	n.edge.kill()
	dig("elsewhere.example", "192.0.2.77")
	n.tunneler.kill()
	n.startTunneler()
	dig("elsewhere.example", "192.0.2.77")
	dig("web.internal", "status: SERVFAIL")
	n.tunneler.end()
	if got := h.state(); got != before {
		t.Errorf("state at the end:\n%s\nbefore:\n%s", got, before)
	}
}

// testProxies uses what needs no privileges: as another user, where nothing is intercepted.
func testProxies(t *testing.T, n *network) {
	h := *n.core
	h.t = t
	run := func(args ...string) []string {
		return append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, args...)
	}
	h.start("listener at", run("ginnel", "tunnel", "run", "--identity", "alice.json", "--socks", "127.0.0.1:1080", "--listen", "127.0.0.1:8081=web.internal:80")...)
	h.start("proxy at", run("ginnel", "tunnel", "run", "--identity", "alice.json", "--socks", "[::1]:1081")...)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"http://127.0.0.1:8081/protocol"}, "HTTP/1.1 127.0.0.1:8081"},
		{[]string{"--socks5-hostname", "127.0.0.1:1080", "http://web.internal/protocol"}, "HTTP/1.1 web.internal"},
		{[]string{"--socks5", "127.0.0.1:1080", "http://10.20.0.1/protocol"}, "HTTP/1.1 10.20.0.1"},
		{[]string{"--socks5", "127.0.0.1:1080", "http://[2001:db8:20::1]/protocol"}, "HTTP/1.1 [2001:db8:20::1]"},
		{[]string{"--socks5-hostname", "[::1]:1081", "http://web.internal/protocol"}, "HTTP/1.1 web.internal"},
		{[]string{"--proxytunnel", "--proxy", "http://127.0.0.1:1080", "http://web.internal/protocol"}, "HTTP/1.1 web.internal"},
		{[]string{"--proxytunnel", "--proxy", "http://127.0.0.1:1080", "http://10.20.0.1/protocol"}, "HTTP/1.1 10.20.0.1"},
		{[]string{"--proxytunnel", "--proxy", "http://[::1]:1081", "http://[2001:db8:20::1]/protocol"}, "HTTP/1.1 [2001:db8:20::1]"},
	} {
		got, err := h.try("", run(append([]string{"curl", "--silent", "--show-error", "--noproxy", "", "--max-time", "30"}, test.args...)...)...)
		h.want(fmt.Sprint("curl ", test.args), got, err, test.want)
	}
	ssh := append(append([]string{"ssh"}, n.sshOptions()...), "-o", "ProxyCommand=ginnel dial %h --identity alice.json", "-o", "HostKeyAlias=ssh.internal", "root@shell", "echo through")
	got, err := h.try("", run(ssh...)...)
	h.want("ssh with ProxyCommand", got, err, "through")
}

// testBuiltIn has the host's router be its tunneler as well, the LAN's gateway, and
// its own edge router. It lies in the prefix of a service, as the other router does.
func testBuiltIn(t *testing.T, n *network, before string) {
	h, lan := *n.host, *n.lan
	h.t, lan.t = t, t
	n.core.keep("gate.token", "ginnel", "router", "create", "gate", "--ctrl-address", "tls:10.71.2.2:7001")
	h.run("ginnel", "router", "init", "--dir", "gate", "--token", "gate.token", "--listen", "0.0.0.0:7001")
	config := filepath.Join(n.dir, "gate", "config.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	section := `
tunneler:
  identity: ../gateway.json
  zone: [internal]
  dns: "0.0.0.0:53"
  hostDNS: file
  intercept: true
  gateway: [10.71.1.0/24]
`
	if err := os.WriteFile(config, append(text, section...), 0o600); err != nil {
		t.Fatal(err)
	}
	n.core.run("ginnel", "policy", "create", "gate", "--kind", "edge-router", "--identity", "@gateway", "--router", "@gate")
	n.core.run("ginnel", "policy", "update", "edge", "--identity", "@alice")
	n.core.run("ginnel", "link", "create", "gate", "edge")
	router := h.start("tunneler runs", "ginnel", "router", "run", "--dir", "gate")
	for _, at := range []*host{&h, &lan} {
		for _, url := range []string{"http://web.internal/protocol", "http://wide.internal:17/protocol", "http://10.20.0.1:8080/protocol", "http://10.71.2.1:7001/protocol"} {
			at.until(url, func() error {
				_, err := at.try("", "curl", "-sS", "--noproxy", "*", "--max-time", "10", url)
				return err
			})
		}
	}
	got := n.core.run("ginnel", "circuit", "list", "--json") + n.core.run("ginnel", "router", "list")
	if !regexp.MustCompile(`gate +yes +yes`).MatchString(got) {
		t.Errorf("the router with the tunneler is not connected:\n%s", got)
	}
	running := h.state()
	if out, err := h.try("", "ginnel", "tunnel", "cleanup"); err == nil || h.state() != running {
		t.Errorf("cleanup beside a tunneler that runs: %s%v; state\n%s\nbefore\n%s", out, err, h.state(), running)
	}
	router.kill()
	h.run("ginnel", "tunnel", "cleanup")
	if got := h.state(); got != before {
		t.Errorf("state after cleanup:\n%s\nbefore:\n%s", got, before)
	}
	router = h.start("tunneler runs", "ginnel", "router", "run", "--dir", "gate")
	h.until("a page", func() error {
		_, err := h.try("", "curl", "-sS", "--noproxy", "*", "--max-time", "10", "http://10.20.0.1:8080/protocol")
		return err
	})
	router.end()
	if got := h.state(); got != before {
		t.Errorf("state at the end:\n%s\nbefore:\n%s", got, before)
	}
}

// state is all of the host that a tunneler changes, and what it might.
func (h *host) state() string {
	h.t.Helper()
	return h.run("ip", "-4", "route", "show", "table", "all") + h.run("ip", "rule") + h.run("ip", "-6", "rule") +
		h.run("sh", "-c", "ip -6 route show table all | grep -v ' dev v'") + h.run("nft", "list", "ruleset") + h.run("cat", "/etc/resolv.conf") +
		h.run("sh", "-c", "cd /proc/sys/net; grep -r . ipv4/ip_forward ipv6/conf/all/forwarding ipv4/conf/*/rp_filter ipv4/conf/*/route_localnet ipv4/conf/*/src_valid_mark")
}

// addMany makes services many-FROM to many-TO, less one; every fourth has a real
// address, too.
func addMany(t *testing.T, client *api.Client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		id := fmt.Sprintf("many-%d", i)
		s := ginnel.Service{ID: ginnel.ServiceID(id), Intercept: &ginnel.Intercept{Addresses: []string{id + ".internal"}, Ports: []string{"80"}}}
		if i%4 == 0 {
			s.Intercept.Addresses = append(s.Intercept.Addresses, fmt.Sprintf("10.30.%d.%d", i/256, i%256))
		}
		if _, err := client.Services().Create(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// keptAddresses gives the addresses of names that the tunneler has written down.
func (n *network) keptAddresses(t *testing.T) map[string]string {
	t.Helper()
	var kept struct {
		Names []struct{ Name, Address string }
	}
	text, err := os.ReadFile(filepath.Join(n.dir, "names.json"))
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, k := range kept.Names {
		all[k.Name] = k.Address
	}
	return all
}

// ports are what differs from one run of a tunneler to the next.
var ports = regexp.MustCompile(`(127\.0\.0\.1|\[::1\]):\d+`)

// testKilledAmongMany kills the tunneler while services come by the hundred.
func testKilledAmongMany(t *testing.T, n *network, before string) {
	h := *n.host
	h.t = t
	client := api.NewSocketClient(filepath.Join(n.dir, "C", api.SocketName))
	defer client.Close()
	const many = 1000
	addMany(t, client, 0, many/2)
	n.tunneler.kill() // in the middle: it has seen some of them
	if h.state() == before {
		t.Fatal("a killed tunneler left nothing: this tests nothing")
	}
	early := n.keptAddresses(t)
	if len(early) < 5 {
		t.Fatalf("names.json has %d names", len(early))
	}
	n.startTunneler()
	addMany(t, client, many/2, many)
	terminator := ginnel.Terminator{Service: ginnel.ServiceID(fmt.Sprintf("many-%d", many-4)), Router: "egress", Address: "tcp:127.0.0.1:8080"}
	if _, err := client.Terminators().Create(context.Background(), terminator); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{fmt.Sprintf("many-%d.internal", many-4), fmt.Sprintf("10.30.%d.%d", (many-4)/256, (many-4)%256)} {
		h.until(name, func() error {
			_, err := h.try("", "curl", "--silent", "--show-error", "--max-time", "10", "http://"+name+"/protocol")
			return err
		})
	}
	now := n.keptAddresses(t)
	for name, address := range early {
		if got := now[name]; got != address {
			t.Errorf("%s: got address %s, had %s before it was killed", name, got, address)
		}
	}
	for i := 0; i < many; i += 97 {
		got := strings.TrimSpace(h.run("dig", "+short", fmt.Sprintf("many-%d.internal", i)))
		if a, err := netip.ParseAddr(got); err != nil || !netip.MustParsePrefix("100.64.0.0/10").Contains(a) {
			t.Errorf("many-%d.internal: got %q", i, got)
		}
	}
	state := h.state()
	if got, want := strings.Count(state, "10.30."), 2*many/4; got != want { // one in the set, one in the rules
		t.Errorf("%d mentions of real addresses, want %d", got, want)
	}
	got, err := h.try("", "curl", "--silent", "--show-error", "--max-time", "30", "http://web.internal/protocol")
	h.want("an old service", got, err, "HTTP/1.1 web.internal")
	n.tunneler.kill()
	h.run("ginnel", "tunnel", "cleanup")
	if got := h.state(); got != before {
		t.Errorf("state after cleanup:\n%s\nbefore:\n%s", got, before)
	}
	n.startTunneler()
	fresh := ""
	h.until("all services", func() error {
		fresh = ports.ReplaceAllString(h.state(), "$1:PORT")
		if got := strings.Count(fresh, "10.30."); got < 2*many/4 {
			return fmt.Errorf("%d mentions of real addresses", got)
		}
		return nil
	})
	n.tunneler.kill()
	n.startTunneler()
	h.until("the state that one has which began on a clean host", func() error {
		if now := ports.ReplaceAllString(h.state(), "$1:PORT"); now != fresh {
			return fmt.Errorf("after a kill:\n%s\nwithout:\n%s", now, fresh)
		}
		return nil
	})
	n.tunneler.end()
	if got := h.state(); got != before {
		t.Errorf("state at the end:\n%s\nbefore:\n%s", got, before)
	}
}
