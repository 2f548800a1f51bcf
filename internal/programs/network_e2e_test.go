// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/testhost"
)

// patience is how long a test waits for what should come at once: the machine
// may be busy with other tests.
const patience = 60 * time.Second

// host is a network namespace.
type host struct {
	t    *testing.T
	name string
	dir  string // where its processes run
	env  []string
}

// network is what the tests of this package share:
//
//	lan ── host ── core ── site
//
// core has the controller, the edge router and the resolver that host asks; on site
// are the servers, on loopback, where nothing but the egress router beside them
// reaches them; host has the tunneler and programs; lan has programs whose gateway
// is host.
type network struct {
	t                     *testing.T
	dir                   string
	lan, host, core, site *host
	controller, edge      *process
	identity              string // the file of the tunneler's
	tunneler              *process
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root")
	}
	n := &network{t: t, dir: t.TempDir(), identity: "gateway.json"}
	// Programs that give up root for another user pass through it.
	for dir := n.dir; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.build()
	n.lan, n.host, n.core, n.site = n.newHost("10.71.1.1"), n.newHost("10.71.2.1"), n.newHost(""), n.newHost("")
	wire(n.lan, "10.71.1.2/24", n.host, "10.71.1.1/24")
	wire(n.lan, "fd71:1::2/64", n.host, "fd71:1::1/64")
	wire(n.host, "10.71.2.2/24", n.core, "10.71.2.1/24")
	wire(n.core, "10.71.3.1/24", n.site, "10.71.3.2/24")
	n.lan.run("ip", "route", "add", "default", "via", "10.71.1.1")
	n.lan.run("ip", "route", "add", "default", "via", "fd71:1::1")
	n.site.run("ip", "route", "add", "10.71.2.1/32", "via", "10.71.3.1") // for the link
	return n
}

// build makes the binary that an operator would use.
func (n *network) build() {
	n.t.Helper()
	out, err := exec.Command("go", "build", "-o", filepath.Join(n.dir, "ginnel"), "github.com/ginnel/ginnel/cmd/ginnel").CombinedOutput()
	if err != nil {
		n.t.Fatalf("build ginnel: %v\n%s", err, out)
	}
}

// newHost makes a host whose programs ask resolver for names.
func (n *network) newHost(resolver string) *host {
	n.t.Helper()
	h := &host{t: n.t, name: testhost.Make(n.t, resolver), dir: n.dir}
	for _, kv := range os.Environ() {
		if key, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(key, "GINNEL_") && !strings.HasSuffix(strings.ToLower(key), "_proxy") {
			h.env = append(h.env, kv)
		}
	}
	h.env = append(h.env, "PATH="+n.dir+":/usr/sbin:/sbin:"+os.Getenv("PATH"), "GINNEL_CONTROLLER="+filepath.Join(n.dir, "C"), "HOME="+n.dir)
	return h
}

// wire joins two hosts; each gets an address with its prefix.
func wire(a *host, addressA string, b *host, addressB string) {
	a.t.Helper()
	testhost.Wire(a.t, a.name, addressA, b.name, addressB)
}

func (h *host) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.name}, args...)...)
	cmd.Dir, cmd.Env = h.dir, h.env
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// try runs a program to its end.
func (h *host) try(stdin string, args ...string) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := h.command(ctx, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, out.String(), problems.String())
	}
	return out.String(), nil
}

// run runs a program that must succeed and gives what it writes.
func (h *host) run(args ...string) string {
	h.t.Helper()
	out, err := h.try("", args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// keep runs a program and puts what it writes into a file.
func (h *host) keep(file string, args ...string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, file), []byte(h.run(args...)), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// process is a program that runs until the test ends it.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *output
	once sync.Once
}

// output keeps what a process writes.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// start starts a program and waits until it has written ready.
func (h *host) start(ready string, args ...string) *process {
	h.t.Helper()
	p := &process{t: h.t, log: &output{}}
	p.cmd = h.command(context.Background(), args...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		p.kill()
		if h.t.Failed() {
			text := p.log.String()
			h.t.Logf("%s said at the end:\n%s", strings.Join(args, " "), text[max(0, len(text)-3000):])
		}
	})
	h.until(strings.Join(args, " "), func() error {
		if strings.Contains(p.log.String(), ready) {
			return nil
		}
		return errors.New(p.log.String())
	})
	return p
}

// end interrupts the program, as an operator does, and wants it to end well.
func (p *process) end() {
	p.t.Helper()
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
		defer late.Stop()
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("%s: ended with %v", strings.Join(p.cmd.Args, " "), err)
		}
	})
}

func (p *process) kill() {
	p.once.Do(func() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() })
}

// until asks again and again until there is no error.
func (h *host) until(what string, ask func() error) {
	h.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: not in %s: %v", what, patience, err)
		}
		<-tick.C
	}
}

// startFabric starts controller and routers, and enrolls alice and the tunneler.
func (n *network) startFabric() {
	n.t.Helper()
	c, s := n.core, n.site
	c.run("ginnel", "controller", "init", "--dir", "C", "--network", "programs")
	if err := os.WriteFile(filepath.Join(n.dir, "controller.yaml"), []byte("dialer: {dialDelay: 0s}\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.controller = c.start("controller runs", "ginnel", "controller", "run", "--dir", "C", "--config", "controller.yaml")
	c.until("controller", func() error { _, err := c.try("", "ginnel", "router", "list"); return err })
	for _, r := range []struct {
		on            *host
		name, address string
	}{{c, "edge", "10.71.2.1:7001"}, {s, "egress", "10.71.3.2:7001"}} {
		c.keep(r.name+".token", "ginnel", "router", "create", r.name, "--ctrl-address", "tls:"+r.address)
		r.on.run("ginnel", "router", "init", "--dir", r.name, "--token", r.name+".token", "--listen", r.address)
		if p := r.on.start("", "ginnel", "router", "run", "--dir", r.name); r.on == c {
			n.edge = p
		}
	}
	c.run("ginnel", "policy", "delete", "all-edge-routers")
	c.run("ginnel", "policy", "create", "edge", "--kind", "edge-router", "--identity", "#all", "--router", "@edge")
	c.run("ginnel", "policy", "create", "dial", "--kind", "dial", "--identity", "#all", "--service", "#all")
	c.run("ginnel", "link", "create", "edge", "egress")
	c.until("routers and their link", func() error {
		out, err := c.try("", "ginnel", "link", "list", "--json")
		if err == nil && !strings.Contains(out, `"up":true`) {
			err = errors.New(out)
		}
		return err
	})
	for _, name := range []string{"alice", "gateway"} {
		c.keep(name+".token", "ginnel", "identity", "create", name)
		n.host.keep(name+".json", "ginnel", "identity", "enroll", name+".token")
	}
}

// service makes a service of a server on site: intercept is as the flag wants it.
func (n *network) service(name, address string, intercepts ...string) {
	n.t.Helper()
	args := []string{"ginnel", "service", "create", name}
	for _, i := range intercepts {
		args = append(args, "--intercept", i)
	}
	n.core.run(args...)
	n.core.run("ginnel", "terminator", "create", name, "--router", "egress", "--address", address)
}

// startTunneler starts the tunneler of the host and its LAN.
func (n *network) startTunneler() {
	n.t.Helper()
	n.tunneler = n.host.start("names at", "ginnel", "tunnel", "run", "--identity", n.identity, "--zone", "internal",
		"--dns", "0.0.0.0:53", "--host-dns", "file", "--intercept", "--gateway", "10.71.1.0/24", "--gateway", "fd71:1::/64", "--state", "names.json", "--socks", "127.0.0.1:1080")
}
