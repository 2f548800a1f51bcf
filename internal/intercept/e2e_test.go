// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package intercept

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const childVariable = "GINNEL_TEST_INTERCEPT"

// init makes this program a tunneler's lower half when a test started it as one.
func init() {
	wanted := os.Getenv(childVariable)
	if wanted == "" {
		return
	}
	if wanted == "cleanup" {
		fmt.Println(Cleanup())
		os.Exit(0)
	}
	pool, at, _ := strings.Cut(wanted, " ")
	i, err := Open(Config{Range: netip.MustParsePrefix(pool)})
	if err == nil {
		err = i.Set([]netip.AddrPort{netip.MustParseAddrPort(at)})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			conn, err := i.Listener().Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, conn.LocalAddr().String())
			_ = conn.Close()
		}
	}()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
	if err := i.Close(); err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

// host is a network namespace of the test's own.
type host struct {
	t    *testing.T
	name string
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root")
	}
	h := &host{t, "ginnel-" + strings.ToLower(rand.Text()[:10])}
	if out, err := exec.Command("ip", "netns", "add", h.name).CombinedOutput(); err != nil {
		t.Skipf("ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", h.name).Run() })
	h.run("ip", "link", "set", "lo", "up")
	return h
}

func (h *host) command(args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", h.name}, args...)...)
}

func (h *host) run(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

func (h *host) routes() string { return h.run("ip", "route", "show", "table", "all") }

// child is an intercepting process.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	first string // its first line
}

func (h *host) start(wanted string, wrapper ...string) *child {
	h.t.Helper()
	program, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := h.command(append(wrapper, program)...)
	cmd.Env = append(os.Environ(), childVariable+"="+wanted)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	return &child{cmd, stdin, strings.TrimSpace(line)}
}

func (c *child) wantReady(t *testing.T) {
	t.Helper()
	if c.first != "ready" {
		t.Fatalf("child says %q", c.first)
	}
}

const where = "100.64.0.0/10 100.64.7.7:443"

// dial connects from inside the namespace and gives what it reads.
func (h *host) dial(at string) string {
	host, port, _ := net.SplitHostPort(at)
	out, err := h.command("timeout", "5", "bash", "-c", "cat < /dev/tcp/"+host+"/"+port).CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

func TestE2E_InterceptAndUndo(t *testing.T) {
	h := newHost(t)
	before := h.routes()
	c := h.start(where)
	c.wantReady(t)
	if got := h.dial("100.64.7.7:443"); got != "100.64.7.7:443" {
		t.Errorf("got %q, want the original destination", got)
	}
	if got := h.dial("100.64.7.7:444"); !strings.Contains(got, "refused") {
		t.Errorf("other port: got %q, want refused", got)
	}
	if got := h.dial("100.64.7.8:443"); !strings.Contains(got, "refused") {
		t.Errorf("other address: got %q, want refused", got)
	}
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if after := h.routes(); after != before {
		t.Errorf("routes after:\n%s\nbefore:\n%s", after, before)
	}
}

func TestE2E_L90_KilledAndStartedAgain(t *testing.T) {
	h := newHost(t)
	before := h.routes()
	for range 3 {
		c := h.start(where)
		c.wantReady(t)
		_, _ = c.cmd.Process.Kill(), c.cmd.Wait()
		if h.routes() == before {
			t.Fatal("a killed process left nothing: this tests nothing")
		}
	}
	other := h.start("198.18.0.0/15 198.18.7.7:443")
	other.wantReady(t)
	if got := h.routes(); strings.Contains(got, "100.64.0.0") {
		t.Errorf("the route of the killed process is still there:\n%s", got)
	}
	_, _ = other.cmd.Process.Kill(), other.cmd.Wait()
	if c := h.start("cleanup"); c.first != "1 <nil>" {
		t.Errorf("cleanup says %q, want 1 removed", c.first)
	}
	if after := h.routes(); after != before {
		t.Errorf("routes after:\n%s\nbefore:\n%s", after, before)
	}
}

func TestE2E_SecondTunnelerIsRefused(t *testing.T) {
	h := newHost(t)
	h.start(where).wantReady(t)
	for _, wanted := range []string{where, "198.18.0.0/15 198.18.7.7:443", "cleanup"} {
		if c := h.start(wanted); !strings.Contains(c.first, "another tunneler") {
			t.Errorf("%s: child says %q", wanted, c.first)
		}
	}
	if got := h.dial("100.64.7.7:443"); got != "100.64.7.7:443" {
		t.Errorf("the first no longer works: %q", got)
	}
}

func TestE2E_L89_RangeInUse(t *testing.T) {
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
			before := h.routes()
			c := h.start(where)
			if !strings.Contains(c.first, test.want) {
				t.Errorf("child says %q, want %q", c.first, test.want)
			}
			if after := h.routes(); test.want != "ready" && after != before {
				t.Errorf("routes after:\n%s\nbefore:\n%s", after, before)
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
