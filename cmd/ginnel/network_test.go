// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSeparateProcesses is the network of the documents, with real processes.
// One network serves all parts: they run in this order.
func TestSeparateProcesses(t *testing.T) {
	n := newNetwork(t)
	n.listensNowhere()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello\n") }))
	t.Cleanup(web.Close)
	n.serve("web", web.Listener.Addr().String(), "--intercept", "web.internal:80")
	n.serve("echo", echo(t))
	n.serve("count", count(t))
	n.run("policy", "create", "staff-web", "--kind", "dial", "--identity", "#staff", "--service", "#internal")
	alice, bob := n.enroll("alice", "staff"), n.enroll("bob")

	t.Run("dial", func(t *testing.T) { (&network{place: n.in(t)}).dials(alice, bob) })
	t.Run("tunnel", func(t *testing.T) { (&network{place: n.in(t)}).tunnels(alice) })
	t.Run("listen", func(t *testing.T) { (&network{place: n.in(t)}).hosts(alice, bob) })
	t.Run("circuits", func(t *testing.T) { (&network{place: n.in(t)}).circuits(alice) })
	t.Run("quiesced", func(t *testing.T) { (&network{place: n.in(t)}).quiesces(alice) })
	t.Run("changed", func(t *testing.T) { (&network{place: n.in(t)}).changes() })
	t.Run("checked", func(t *testing.T) { (&network{place: n.in(t)}).checks(alice) })
	t.Run("refused", func(t *testing.T) { (&network{place: n.in(t)}).refusals(alice, bob) })
	n.survivesController(alice)
	n.builtIn(alice)
	n.dialer()
	t.Run("nouns", func(t *testing.T) { (&network{place: n.in(t)}).nouns() })
}

// listensNowhere proves that the controller has no TCP listener.
func (n *network) listensNowhere() {
	n.Helper()
	if got := tcpListeners(n.T, n.controller.cmd.Process.Pid); got != 0 {
		n.Errorf("the controller listens on %d TCP ports", got)
	}
	if got := tcpListeners(n.T, n.routers["r1"].cmd.Process.Pid); got != 1 {
		n.Errorf("a router listens on %d TCP ports, want 1: the count is wrong", got)
	}
}

// tcpListeners counts the TCP sockets in state LISTEN that a process holds, IPv4
// and IPv6 (proc_pid_fd(5), proc_pid_net(5)).
func tcpListeners(t *testing.T, pid int) int {
	t.Helper()
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	own := map[string]bool{}
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skipf("no /proc to see sockets in: %v", err)
	}
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		t.Fatalf("sockets of process %d: %v", pid, err) // it is dead, not the system another
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(proc, "fd", f.Name())); err == nil {
			own[to] = true
		}
	}
	listening := 0
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, "net", table))
		if errors.Is(err, os.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && fields[3] == "0A" && own["socket:["+fields[9]+"]"] {
				listening++
			}
		}
	}
	return listening
}

// dials: input to the service, its answer to output, each direction to its end.
func (n *network) dials(alice, bob string) {
	watch := n.start("circuit", "watch")
	records := n.start("circuit", "watch", "--json")
	defer watch.stop()
	defer records.stop()
	if got := n.feed("GET / HTTP/1.0\r\n\r\n", "dial", "web", "--identity", alice); !strings.HasSuffix(got, "\r\n\r\nhello\n") {
		n.Errorf("web: %q", got)
	}
	// The end of the input is passed on: this service answers only then.
	long := strings.Repeat("x", 1<<20)
	if got := n.with("GINNEL_IDENTITY="+alice).feed(long, "dial", "count"); got != strconv.Itoa(len(long)) {
		n.Errorf("count: %q", got)
	}
	if got := n.feed(long, "dial", "echo", "--identity", alice); got != long {
		n.Errorf("echo: %d bytes, want %d", len(got), len(long))
	}
	status, stdout, stderr := n.try("hi", "ginnel", "dial", "echo", "--identity", alice, "--explain")
	if status != 0 || stdout != "hi" || !strings.Contains(stderr, "\n6 path") || !strings.Contains(stderr, "\n9 data") {
		n.Errorf("explain: status %d: %q\n%s", status, stdout, stderr)
	}
	lines := strings.SplitN(n.feed("hi", "dial", "echo", "--identity", alice, "--explain", "--json"), "\n", 2)
	if o := n.object(lines[0]); o["circuit"] == "" || o["peer"] != "router/r2" || lines[1] != "hi" {
		n.Errorf("explain: %q", lines)
	}

	n.refused(2, "give --identity FILE", "dial", "web")
	n.refused(2, "give SERVICE", "dial", "--identity", alice)
	n.refused(1, "INVALID_SERVICE: there is no service \"nope\"", "dial", "nope", "--identity", alice)
	if o := n.refused(1, "no dial policy joins identity bob and service web", "dial", "web", "--identity", bob); o["code"] != "NOT_AUTHORIZED" ||
		fmt.Sprint(o["hints"]) != "[on the controller: ginnel policy why --identity bob --service web]" {
		n.Errorf("not authorized: %v", o)
	}
	n.whys()
	n.run("service", "create", "bare", "--role", "internal")
	n.refused(1, "NO_TERMINATORS", "dial", "bare", "--identity", alice)
	n.serve("closed", "127.0.0.1:"+n.ports(1)[0])
	o := n.refused(1, "ROUTER_ERR_CONN_REFUSED", "dial", "closed", "--identity", alice)
	attempts, _ := o["attempts"].([]any)
	if circuit, _ := o["circuit"].(string); circuit == "" || len(attempts) != 1 {
		n.Errorf("a failed dial: %v", o)
	} else if a := attempts[0].(map[string]any); a["terminator"] != "closed@r2" || a["code"] != o["code"] || a["cause"] == "" {
		n.Errorf("its attempt: %v", a)
	} else if x := n.objects("circuit", "explain", circuit)[0]; x["code"] != o["code"] || x["cause"] != o["message"] {
		n.Errorf("its explanation: %v", x)
	} else {
		watch.out.has(" dial   " + circuit + " closed for alice: ROUTER_ERR_CONN_REFUSED after ")
		records.out.has(`"event":"dial","circuit":"` + circuit + `","service":"closed","client":"alice"`)
		records.out.has(`"attempts":[{"terminator":"closed@r2"`)
		watch.out.has(" ended  ") // those before, once they are over
	}
}

// whys: what policies say, for people and programs.
func (n *network) whys() {
	got := n.run("policy", "why", "--identity", "bob", "--service", "web")
	for _, want := range []string{"staff-web: not its identities", "no dial policy joins identity bob and service web", "\nedge router r2  yes      all-edge-routers"} {
		if !strings.Contains(got, want) {
			n.Errorf("why: no %q in\n%s", want, got)
		}
	}
	o := n.objects("policy", "why", "--identity", "alice", "--service", "web")[0]
	if dial, _ := o["dial"].(map[string]any); dial["allowed"] != true || dial["by"].([]any)[0] != "staff-web" {
		n.Errorf("why: %v", o)
	}
	n.refused(1, "identity eve: not found", "policy", "why", "--identity", "eve", "--service", "web")
	n.refused(2, "give --identity", "policy", "why", "--service", "web")
}

// tunnels: unchanged programs reach a service by name.
func (n *network) tunnels(alice string) {
	ports := n.ports(3)
	dns, socks, plain := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	x := n.start("tunnel", "run", "--identity", alice, "--dns", dns, "--socks", socks, "--listen", plain+"=web.internal:80")
	x.log.has("ginnel: tunneler runs: names at " + dns + ", proxy at " + socks + ", listener at " + plain)
	n.Run("curl", func(t *testing.T) {
		p := n.in(t)
		p.needs("curl")
		for _, args := range [][]string{
			{"--socks5-hostname", socks, "http://web.internal/"},
			{"--proxy", "http://" + socks, "--proxytunnel", "http://web.internal/"},
			{"http://" + plain + "/"},
		} {
			p.await("curl by name", func() bool { // names come with the list of services
				status, stdout, _ := p.try("", "curl", append([]string{"-sS"}, args...)...)
				return status == 0 && stdout == "hello\n"
			})
		}
		if status, _, _ := p.try("", "curl", "-sS", "--socks5-hostname", socks, "http://other.internal/"); status == 0 {
			t.Error("a name that is no service's")
		}
	})
	n.Run("dig", func(t *testing.T) {
		p := n.in(t)
		p.needs("dig")
		dig := func(kind string, flags ...string) []string {
			args := append([]string{"@127.0.0.1", "-p", ports[0], "+short", "web.internal", kind}, flags...)
			status, stdout, stderr := p.try("", "dig", args...)
			if status != 0 {
				t.Errorf("dig %s: status %d: %s%s", kind, status, stdout, stderr)
			}
			return strings.Fields(stdout)
		}
		p.await("an address", func() bool { return len(dig("A")) == 1 })
		at, err := netip.ParseAddr(dig("A", "+tcp")[0])
		if err != nil || !netip.MustParsePrefix("100.64.0.0/10").Contains(at) {
			t.Errorf("A: %s, %v", at, err)
		}
		if got := dig("AAAA"); len(got) != 0 {
			t.Errorf("AAAA: %v", got)
		}
	})
	x.stop()
}

// builtIn: a router with a tunneler in its process.
func (n *network) builtIn(alice string) {
	n.Helper()
	n.routers["r1"].stop()
	ports := n.ports(3)
	dns, socks, plain := "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	text, err := os.ReadFile(n.path("r1/config.yaml"))
	if err != nil {
		n.Fatal(err)
	}
	n.write("r1/config.yaml", string(text)+"tunneler:\n  identity: ../"+alice+"\n  zone: [internal]\n  dns: "+strconv.Quote(dns)+
		"\n  socks: "+strconv.Quote(socks)+"\n  listen: ["+strconv.Quote(plain+"=web.internal:80")+"]\n")
	n.startRouter("r1")
	n.await("a page by the router's tunneler", func() bool {
		status, stdout, _ := n.try("", "curl", "-sS", "http://"+plain+"/")
		return status == 0 && stdout == "hello\n"
	})
	if status, stdout, stderr := n.try("", "curl", "-sS", "--socks5-hostname", socks, "http://web.internal/"); status != 0 || stdout != "hello\n" {
		n.Errorf("SOCKS5: status %d: %q, %s", status, stdout, stderr)
	}
	if _, err := os.Stat(n.path("r1/names.json")); err != nil {
		n.Errorf("the addresses of names are not kept in the router's directory: %v", err)
	}
	n.connected(2)
}

// needs skips the test where a program is missing.
func (p *place) needs(program string) {
	p.Helper()
	if _, err := exec.LookPath(program); err != nil {
		p.Skipf("there is no %s here: %v", program, err)
	}
}

// hosts: a service at the end of a listen.
func (n *network) hosts(alice, bob string) {
	n.run("service", "create", "files", "--role", "internal")
	if o := n.refused(1, "no bind policy joins identity bob and service files", "listen", "files", "--identity", bob); o["code"] != "NOT_AUTHORIZED" {
		n.Errorf("listen without a policy: %v", o)
	}
	n.refused(1, "no bind policy joins identity bob and service files", "perf", "server", "--service", "files", "--identity", bob)
	early := n.start("tunnel", "run", "--host", "files=tcp:127.0.0.1:1", "--identity", bob)
	early.log.has(`service=files err="NOT_AUTHORIZED: no bind policy joins`)
	early.stop()
	n.run("policy", "create", "bob-hosts", "--kind", "bind", "--identity", "@bob", "--service", "@files")
	hosted := func(want int) {
		n.await(strconv.Itoa(want)+" hosts of files", func() bool {
			return n.objects("service", "show", "files")[0]["terminators"] == float64(want)
		})
	}
	x := n.start("listen", "files", "--identity", bob)
	hosted(2) // one at each edge router
	x.say("from bob")
	_ = x.in.Close()
	if got := n.feed("from alice", "dial", "files", "--identity", alice); got != "from bob\n" {
		n.Errorf("listen answered %q", got)
	}
	if err := x.wait(); err != nil || x.out.String() != "from alice" {
		n.Errorf("listen: %v, %q", err, x.out)
	}
	hosted(0)

	address := "tcp:" + echo(n.T)
	forward := n.start("listen", "files", "--identity", bob, "--forward", address)
	forward.log.has("ginnel: hosting files at " + address)
	hosted(2)
	for range 2 {
		if got := n.feed("twice", "dial", "files", "--identity", alice); got != "twice" {
			n.Errorf("forward answered %q", got)
		}
	}
	forward.stop()
	hosted(0)
	n.start("tunnel", "run", "--identity", bob, "--host", "files=tcp:"+echo(n.T))
	hosted(2)
	if got := n.feed("thrice", "dial", "files", "--identity", alice); got != "thrice" {
		n.Errorf("tunnel answered %q", got)
	}
}

// conversation is a dial to the echo service that is held open.
type conversation struct {
	*process
	lines int
}

func (n *network) talk(alice string) *conversation {
	n.Helper()
	c := &conversation{process: n.start("dial", "echo", "--identity", alice)}
	c.turn()
	return c
}

// turn says a line and waits for its echo.
func (c *conversation) turn() {
	c.p.Helper()
	c.lines++
	line := "line " + strconv.Itoa(c.lines)
	c.say(line)
	c.out.has(line + "\n")
}

// end closes the input: the dial must end well, with each line once.
func (c *conversation) end() {
	c.p.Helper()
	_ = c.in.Close()
	if err := c.wait(); err != nil {
		c.p.Errorf("the dial ended: %v: %s", err, c.log)
	}
	lines := bufio.NewScanner(strings.NewReader(c.out.String()))
	got := 0
	for lines.Scan() {
		if got++; lines.Text() != "line "+strconv.Itoa(got) {
			c.p.Errorf("line %d is %q", got, lines.Text())
		}
	}
	if got != c.lines {
		c.p.Errorf("%d lines came back, want %d", got, c.lines)
	}
}

// circuits are listed, shown and ended by an operator.
func (n *network) circuits(alice string) {
	n.await("no circuits", func() bool { return len(n.objects("circuit", "list")) == 0 })
	c := n.talk(alice)
	var all []map[string]any
	n.await("the circuit", func() bool { // routers gather what they report
		all = n.objects("circuit", "list")
		return len(all) > 0
	})
	if len(all) != 1 || all[0]["service"] != "echo" || all[0]["client"] != "alice" {
		n.Fatalf("circuits: %v", all)
	}
	id := all[0]["id"].(string)
	if got := n.run("circuit", "list"); !strings.Contains(got, id+"  echo ") {
		n.Errorf("table of circuits: %s", got)
	}
	if o := n.objects("circuit", "show", id)[0]; o["id"] != id {
		n.Errorf("circuit: %v", o)
	}
	if got := n.run("circuit", "explain", id); !strings.Contains(got, "circuit "+id+": service echo for alice over r") || !strings.Contains(got, "\n9 outcome       OK ") {
		n.Errorf("circuit explain: %s", got)
	}
	n.refused(1, "circuit none: none of the last", "circuit", "explain", "none")
	n.run("circuit", "delete", id)
	if err := c.wait(); err == nil || !strings.HasPrefix(c.log.String(), "ginnel: REVOKED: ") || !strings.Contains(c.log.String(), "(circuit "+id+")") {
		n.Errorf("the dial: %v: %s", err, c.log)
	}
	c.killed = true // its end is judged
	n.await("no circuits", func() bool { return len(n.objects("circuit", "list")) == 0 })
	n.refused(1, "circuit "+id+": not found", "circuit", "show", id)
}

// quiesces: a quiesced router keeps what it has and gets nothing new.
func (n *network) quiesces(alice string) {
	c := n.talk(alice)
	n.run("router", "quiesce", "r2")
	n.refused(1, "every terminator's router is quiesced", "dial", "echo", "--identity", alice)
	if o := n.objects("router", "show", "r2")[0]; o["quiesced"] != true || o["connected"] != true {
		n.Errorf("quiesced: %v", o)
	}
	n.run("router", "quiesce", "r1")
	n.refused(1, "EDGE_ROUTER_UNAVAILABLE", "dial", "echo", "--identity", alice)
	c.turn()
	n.run("router", "resume", "r1")
	n.run("router", "resume", "r2")
	if got := n.feed("new", "dial", "echo", "--identity", alice); got != "new" {
		n.Errorf("after resume: %q", got)
	}
	c.turn()
	c.end()
	n.refused(1, "router nope: not found", "router", "quiesce", "nope")
}

// checks: a terminator whose check fails is the last to be taken, and says so.
func (n *network) checks(alice string) {
	n.refused(2, "give --check too", "terminator", "create", "echo", "--router", "r2", "--address", "tcp:127.0.0.1:1", "--check-path", "/")
	n.refused(2, "want tcp or http", "terminator", "create", "echo", "--router", "r2", "--address", "tcp:127.0.0.1:1", "--check", "ping")
	made := n.objects("terminator", "create", "echo", "--router", "r1", "--address", "tcp:127.0.0.1:"+n.ports(1)[0],
		"--precedence", "required", "--check", "tcp", "--check-interval", "1s", "--check-timeout", "500ms")[0]
	id := made["id"].(string)
	n.await("the check fails", func() bool {
		o := n.objects("terminator", "show", id)[0]
		return o["unhealthy"] == true && o["effective_precedence"] == "failed"
	})
	if got := n.run("terminator", "list"); !strings.Contains(got, " CHECK ") || !strings.Contains(got, " failed ") {
		n.Errorf("list: %s", got)
	}
	if got := n.feed("hi", "dial", "echo", "--identity", alice); got != "hi" {
		n.Errorf("dialed %q", got)
	}
	n.run("terminator", "delete", id)
}

// survivesController: a circuit does not notice that the controller is killed,
// and dials work soon after it is back.
func (n *network) survivesController(alice string) {
	c := n.talk(alice)
	n.keep("elsa.token", "identity", "create", "elsa")
	n.controller.kill()
	c.turn()
	n.refused(1, "connection refused", "service", "list")
	n.refused(1, "the router has none now", "identity", "enroll", "elsa.token")
	n.refused(1, "CONTROLLER_UNAVAILABLE", "dial", "echo", "--identity", alice)
	c.turn()
	n.startController()
	from := time.Now()
	n.await("a dial", func() bool {
		status, stdout, _ := n.try("again", "ginnel", "dial", "echo", "--identity", alice)
		return status == 0 && stdout == "again"
	})
	if took := time.Since(from); took > 5*time.Second {
		n.Errorf("dials worked %s after the controller was back", took)
	}
	n.connected(2)
	c.turn()
	n.await("the circuit, reported to the new process", func() bool { return len(n.objects("circuit", "list")) == 1 })
	c.end()
}

// dialer: a router goes and comes back, seen by the dialer's commands.
func (n *network) dialer() {
	watch := n.start("dialer", "watch", "--json")
	n.routers["r2"].stop()
	events := watch.out
	events.has(`"to":"NeedsDial"`)
	n.await("a failed dial", func() bool {
		o := n.objects("dialer", "inspect", "r2")[0]
		return o["connected"] == false && strings.Contains(o["last_error"].(string), "connection refused")
	})
	if got := n.run("dialer", "list"); !strings.Contains(got, "\nr2      NeedsDial ") && !strings.Contains(got, "\nr2      Dialing ") {
		n.Errorf("list: %s", got)
	}
	if all := n.objects("dialer", "list"); len(all) == 0 || all[len(all)-1]["router"] != "r2" || all[len(all)-1]["attempts"] == 0.0 {
		n.Errorf("list: %v", all)
	}
	n.startRouter("r2")
	n.await("a redial, or that it is not needed", func() bool {
		status, _, _ := n.try("", "ginnel", "dialer", "redial", "r2")
		return status == 0 || n.objects("router", "show", "r2")[0]["connected"] == true
	})
	n.connected(2)
	events.has(`"to":"Connected"`)
	n.refused(1, "router r9: not found", "dialer", "redial", "r9")
	n.refused(1, "router r9: not found", "dialer", "inspect", "r9")
	if got := n.run("dialer", "validate"); !strings.Contains(got, "PROBLEM") || !strings.Contains(got, "\nr2 ") {
		n.Errorf("validate: %s", got)
	}
	for _, o := range n.objects("dialer", "validate") {
		if o["problem"] != nil || o["connected"] != true {
			n.Errorf("validate: %v", o)
		}
	}
	watch.stop()
}

// nouns: list, show and delete of all that was made, for people and programs.
func (n *network) nouns() {
	for _, noun := range []struct{ name, id string }{
		{"policy", "staff-web"},
		{"terminator", "web@r2"},
		{"service", "web"},
		{"identity", "alice"},
		{"link", "r1/r2/0"},
		{"router", "r2"},
	} {
		if got := n.run(noun.name, "list"); !strings.HasPrefix(got, strings.ToUpper(noun.name)) || !strings.Contains(got, "\n"+noun.id+" ") {
			n.Errorf("%s list: %s", noun.name, got)
		}
		before := n.objects(noun.name, "list")
		if got := n.run(noun.name, "show", noun.id); !strings.Contains(got, "id: "+noun.id+"\n") {
			n.Errorf("%s show: %s", noun.name, got)
		}
		if o := n.objects(noun.name, "show", noun.id); len(o) != 1 || o[0]["id"] != noun.id {
			n.Errorf("%s show: %v", noun.name, o)
		}
		if o := n.objects(noun.name, "delete", noun.id); len(o) != 1 || o[0]["id"] != noun.id {
			n.Errorf("%s delete: %v", noun.name, o)
		}
		n.await(noun.name+" gone", func() bool { // a link stays until its routers have ended it
			return len(n.objects(noun.name, "list")) == len(before)-1
		})
		n.refused(1, noun.name+" "+noun.id+": not found", noun.name, "show", noun.id)
		n.refused(1, noun.name+" "+noun.id+": not found", noun.name, "delete", noun.id)
	}
	n.await("the deleted router's channel is closed", func() bool { return len(n.objects("dialer", "validate")) == 1 })
}
