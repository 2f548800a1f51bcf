// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package intercept

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/testhost"
)

const childVariable = "GINNEL_TEST_INTERCEPT"

// order is what a child is told, a line of JSON each.
type order struct {
	Range   netip.Prefix
	Gateway []netip.Prefix
	Targets []Target
	Add     []Target // to what there is, as names below wildcards come
	Remove  []Target // likewise
	Dial    string   // connect there as the tunneler itself does, and say what is read
}

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
	var o order
	if err := json.Unmarshal([]byte(wanted), &o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := runChild(o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild(o order) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	i, err := Open(Config{Range: o.Range, Gateway: o.Gateway, Log: log})
	if err != nil {
		return err
	}
	if err := i.Set(o.Targets); err != nil {
		return errors.Join(err, i.Close())
	}
	go answerConnections(i.Listener())
	go answerPackets(i.Packets())
	fmt.Println("ready")
	for orders := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := orders.Decode(&o); err != nil {
			return i.Close()
		}
		if o.Dial != "" {
			fmt.Println(dialAsOwn(o.Dial))
			continue
		}
		if o.Targets == nil {
			fmt.Println("change", i.Change(o.Remove, o.Add))
			continue
		}
		fmt.Println("set", i.Set(o.Targets))
	}
}

// answerConnections says to each where it wanted to go, then sends back what it sends.
func answerConnections(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			if addressOf(conn.LocalAddr()).Port() == 9999 { // the service that cannot be dialed
				reset(conn)
				return
			}
			_, _ = fmt.Fprintln(conn, "caught", conn.LocalAddr())
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func answerPackets(p PacketSocket) {
	buf := make([]byte, 64<<10)
	for {
		n, from, to, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		_ = p.WriteTo([]byte(fmt.Sprintf("caught %s %d", to, n)), to, from)
	}
}

func dialAsOwn(at string) string {
	conn, err := (&net.Dialer{Control: Own(shared), Timeout: 5 * time.Second}).Dial("tcp", at)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line)
}

// host is a network namespace of the test's own.
type host struct {
	t    *testing.T
	name string
}

func newHost(t *testing.T) *host {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	return &host{t, testhost.Make(t, "")}
}

// wire joins two hosts; each gets an address with its prefix.
func wire(a *host, addressA string, b *host, addressB string) {
	a.t.Helper()
	testhost.Wire(a.t, a.name, addressA, b.name, addressB)
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

// state is all that an interceptor may change.
func (h *host) state() string {
	sysctls := ""
	for _, name := range []string{"ip_forward", "conf/all/rp_filter", "conf/lo/rp_filter", "conf/all/route_localnet", "conf/all/src_valid_mark"} {
		sysctls += name + " " + h.run("cat", filepath.Join("/proc/sys/net/ipv4", name))
	}
	tables := ""
	for _, family := range []string{"ip", "ip6", "inet"} { // in one order, whichever came first
		tables += h.run("nft", "list", "ruleset", family)
	}
	return h.run("ip", "-4", "route", "show", "table", "all") + h.run("ip", "rule") + h.run("ip", "-6", "rule") +
		h.run("sh", "-c", "ip -6 route show table all | grep 6717 || true") + tables + sysctls
}

// until asks again and again until the answer is as wanted.
func (h *host) until(what string, ask func() string, want string) {
	h.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(20 * time.Second)
	for {
		got := ask()
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: got %q, want %q", what, got, want)
		}
		<-tick.C
	}
}

// child is an intercepting process.
type child struct {
	*testhost.Program
	t     *testing.T
	first string // its first line
}

func (h *host) start(o order, wrapper ...string) *child {
	h.t.Helper()
	wanted, err := json.Marshal(o)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.startText(string(wanted), wrapper...)
}

func (h *host) startText(wanted string, wrapper ...string) *child {
	h.t.Helper()
	program, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := h.command(append(wrapper, program)...)
	cmd.Env = append(os.Environ(), childVariable+"="+wanted, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	c := &child{Program: testhost.Start(h.t, cmd), t: h.t}
	c.first = c.Hear()
	return c
}

func (c *child) tell(o order) string {
	c.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	c.Say(string(text))
	return c.Hear()
}

func (c *child) wantReady() {
	c.t.Helper()
	if c.first != "ready" {
		c.t.Fatalf("child says %q", c.first)
	}
}

// ask connects from inside the namespace and gives the first line it reads.
func (h *host) ask(at string) string { return h.askFor("10", at) }

// refuses reports whether at is not served to h, by refusal or by silence.
func (h *host) refuses(at string) bool { return !strings.Contains(h.askFor("0.5", at), "caught") }

func (h *host) askFor(seconds, at string) string {
	address, port, _ := net.SplitHostPort(at)
	out, err := h.command("timeout", seconds, "bash", "-c", "exec 3<>/dev/tcp/"+address+"/"+port+"; head -1 <&3").CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// send sends a datagram of size bytes from inside the namespace and gives the answer.
func (h *host) send(at string, size int) string { return h.sendFor("10", at, size) }

func (h *host) sendFor(seconds, at string, size int) string {
	address, port, _ := net.SplitHostPort(at)
	script := fmt.Sprintf("exec 3<>/dev/udp/%s/%s; dd if=/dev/zero bs=%d count=1 status=none >&3; dd bs=4096 count=1 status=none <&3", address, port, size)
	out, _ := h.command("timeout", seconds, "bash", "-c", script).CombinedOutput()
	return strings.TrimSpace(string(out))
}

// serve answers connections and datagrams at port of host with word: what is not intercepted.
func (h *host) serve(word string, ports ...string) {
	h.t.Helper()
	for _, port := range ports {
		cmd := h.command("python3", "-c", `
import socket, sys, threading
def datagrams(u):
    while True:
        b, at = u.recvfrom(65536); u.sendto(sys.argv[2].encode() + b" %d" % len(b), at)
s = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
u = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
u.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0); u.bind(("::", int(sys.argv[1])))
threading.Thread(target=datagrams, args=(u,), daemon=True).start()
print("ready", flush=True)
while True:
    c, _ = s.accept(); c.sendall(sys.argv[2].encode() + b"\n"); c.close()
`, port, word)
		testhost.Start(h.t, cmd).WantReady()
	}
}

// talk connects from inside the namespace and gives what sends a line there and
// says what comes back, which is empty once the connection has ended.
func (h *host) talk(at string) func(line string) string {
	h.t.Helper()
	address, port, _ := net.SplitHostPort(at)
	cmd := h.command("bash", "-c", `exec 3<>/dev/tcp/`+address+`/`+port+`; read -r -t 5 hello <&3; while read -r line; do
		echo "$line" >&3 && read -r -t 5 answer <&3 && echo "$answer" || echo; done`)
	p := testhost.Start(h.t, cmd)
	return func(line string) string {
		p.Say(line)
		return p.Hear()
	}
}
