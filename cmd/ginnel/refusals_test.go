// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ginnel/ginnel/internal/router"
)

// refusals: what a running network refuses, each with one clear line.
func (n *network) refusals(alice, bob string) {
	n.refused(1, "C/store is in use by another process", "controller", "run", "--dir", "C")
	n.refused(1, "C holds a network already", "controller", "init", "--dir", "C", "--network", "x")
	for _, role := range []string{"router", "identity"} {
		n.keep("there.token", role, "create", "there")
		again := n.refused(1, role+" there: exists already", role, "create", "there")
		if hint := fmt.Sprint(again["hints"]); !strings.Contains(hint, "ginnel "+role+" token there") {
			n.Errorf("hint of a %s that is there: %s", role, hint)
		}
		n.run(role, "delete", "there")
	}
	n.refused(1, "refers to router r9: not found", "link", "create", "r1", "r9")
	n.refused(1, "refers to service nope: not found", "terminator", "create", "nope", "--router", "r1", "--address", "tcp:a:1")
	n.refused(1, `want "#role"`, "policy", "create", "p", "--kind", "dial", "--identity", "staff", "--service", "#x")
	n.refused(1, "address already in use", "router", "run", "--dir", "r1")
	// What may come later is allowed, and told.
	_, _, stderr := n.try("", "ginnel", "policy", "create", "slip", "--kind", "dial", "--identity", "@alcie", "--identity", "@alice", "--service", "@wbe")
	if stderr != "ginnel: policy slip created; there is no identity alcie yet; there is no service wbe yet\n" {
		n.Errorf("a policy that names what is not there: %q", stderr)
	}
	n.run("policy", "delete", "slip")

	n.tokens()
	n.identityFiles(alice, bob)
	n.strangers()
}

// tokens that are not what they should be.
func (n *network) tokens() {
	n.write("garbage.token", "garbage\n")
	n.refused(1, "does not start with", "identity", "enroll", "garbage.token")
	n.refused(1, "garbage.token: malformed", "router", "init", "--dir", "G", "--token", "garbage.token", "--listen", "127.0.0.1:0")
	used := n.refused(1, "NOT_AUTHENTICATED: token was used by another key", "identity", "enroll", "alice.token")
	if hint := fmt.Sprint(used["hints"]); !strings.Contains(hint, "ginnel identity token alice") {
		n.Errorf("hint of a token that was used: %s", hint)
	}
	n.refused(1, "router/r1, not of an identity", "identity", "enroll", "r1.token")
	n.refused(1, "for identity/alice, not for a router", "router", "init", "--dir", "G", "--token", "alice.token")
	n.keep("late.token", "identity", "create", "late", "--token-life", "1ns")
	n.refused(1, "token expired", "identity", "enroll", "late.token")
	n.keep("late.token", "router", "create", "rlate", "--token-life", "1ns")
	n.refused(1, "token expired", "router", "init", "--dir", "G", "--token", "late.token")
	n.run("router", "delete", "rlate")
	// Replaced by a newer one.
	n.keep("old.token", "identity", "create", "dora")
	n.keep("new.token", "identity", "token", "dora")
	n.refused(1, "NOT_AUTHENTICATED", "identity", "enroll", "old.token")
	n.run("identity", "enroll", "new.token", "--output", "dora.json")
	// That of another router, in the directory of one that is enrolled or not.
	n.renew(n.path("r1"), n.path("r2.token"))
	n.refused(1, "address already in use", "router", "run", "--dir", "r1") // not needed any more
	if err := os.Remove(filepath.Join(n.path("r1"), router.TokenFile)); err != nil {
		n.Error(err)
	}
}

// renew puts a token into a router's directory.
func (n *network) renew(dir, token string) {
	n.Helper()
	text, err := os.ReadFile(token)
	if err != nil {
		n.Fatal(err)
	}
	write(n.T, dir, router.TokenFile, string(text))
}

// identityFiles that are not there, or not whole.
func (n *network) identityFiles(alice, bob string) {
	n.refused(1, "nofile: no such file", "dial", "web", "--identity", "nofile")
	n.write("cut.json", "{")
	n.refused(1, "identity file cut.json: malformed", "dial", "web", "--identity", "cut.json")
	mixed := func(name string, change func(alice, bob string) string) {
		a, b := n.read(alice), n.read(bob)
		n.write(name, change(a, b))
	}
	mixed("named.json", func(a, _ string) string { return strings.Replace(a, `"alice"`, `"carol"`, 1) })
	n.refused(1, `id: "carol", but the certificate is that of identity/alice`, "dial", "web", "--identity", "named.json")
	mixed("keyed.json", func(a, b string) string {
		return strings.Replace(a, lineWith(a, `"key"`), lineWith(b, `"key"`), 1)
	})
	n.refused(1, "key is not that of the certificate", "tunnel", "run", "--dns", "127.0.0.1:0", "--identity", "keyed.json")
	if info, err := os.Stat(n.path("dora.json")); err != nil || info.Mode().Perm() != 0o600 {
		n.Errorf("identity file: %v, %v", info, err)
	}
}

func (n *network) read(name string) string {
	n.Helper()
	text, err := os.ReadFile(n.path(name))
	if err != nil {
		n.Fatal(err)
	}
	return string(text)
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// strangers: a router of another network, and one with another router's token,
// where the controller expects its own.
func (n *network) strangers() {
	n.run("controller", "init", "--dir", "C2", "--network", "other")
	n.write("C2/controller.yaml", shortDelay)
	other := n.with("GINNEL_CONTROLLER=C2")
	c2 := n.start("controller", "run", "--dir", "C2")
	n.await("another controller", func() bool {
		status, _, _ := other.try("", "ginnel", "router", "list")
		return status == 0
	})
	port := n.ports(1)[0]
	at := "127.0.0.1:" + port
	other.keep("r3.token", "router", "create", "r3", "--ctrl-address", "tls:"+at)
	n.run("router", "init", "--dir", "R3", "--token", "r3.token", "--listen", at)
	r3 := n.start("router", "run", "--dir", "R3")
	n.await("the other network's router", func() bool { return other.objects("router", "show", "r3")[0]["connected"] == true })
	c2.stop()

	n.keep("own.token", "router", "create", "r3", "--ctrl-address", "tls:"+at)
	n.await("a reason not to connect", func() bool {
		o := n.objects("dialer", "inspect", "r3")[0]
		text, _ := o["last_error"].(string)
		return strings.Contains(text, "certificate") && o["connected"] == false
	})
	r3.stop()
	// Not enrolled, with the token of r4: the controller has r3's open.
	n.keep("r4.token", "router", "create", "r4", "--ctrl-address", "tls:"+at)
	n.run("router", "init", "--dir", "R4", "--token", "r4.token", "--listen", at)
	n.run("router", "update", "r4", "--ctrl-address", "tls:127.0.0.1:1")
	r4 := n.start("router", "run", "--dir", "R4")
	n.await("another reason", func() bool {
		_, _, _ = n.try("", "ginnel", "dialer", "redial", "r3")
		o := n.objects("dialer", "inspect", "r3")[0]
		text, _ := o["last_error"].(string)
		return strings.Contains(text, "wrong peer") || strings.Contains(text, "secret") || strings.Contains(text, "token")
	})
	if o := n.objects("router", "show", "r3")[0]; o["enrolled"] == true || o["connected"] == true {
		n.Errorf("taken for r3: %v", o)
	}
	r4.stop()
	n.run("router", "delete", "r3", "r4")
}

// TestRefusedWithoutNetwork: what is wrong before anybody is asked.
func TestRefusedWithoutNetwork(t *testing.T) {
	p := newPlace(t)
	p.refused(2, "give --dir and --network", "controller", "init")
	p.refused(2, "unknown flag: --bogus", "controller", "run", "--bogus")
	p.refused(1, "C holds no controller", "controller", "run", "--dir", "C")
	p.refused(1, "R holds no router", "router", "run", "--dir", "R")
	p.refused(2, "no controller named", "service", "list")
	p.refused(1, "no controller runs in C", "service", "list", "--controller", "C")
	for _, at := range []string{"127.0.0.1:1", "tls:127.0.0.1:1"} {
		o := p.refused(1, "no controller runs in "+at, "service", "list", "--controller", at)
		if hint := fmt.Sprint(o["hints"]); hint != "[a port is asked by --controller https://127.0.0.1:1]" {
			p.Errorf("hint where a port has no scheme: %s", hint)
		}
	}
	p.refused(2, "want a directory or https://", "service", "list", "--controller", "http://127.0.0.1:1")
	p.refused(2, "want https://HOST:PORT", "service", "list", "--controller", "https:///x")
	p.refused(2, "no identity named", "service", "list", "--controller", "https://127.0.0.1:1")
	p.refused(2, "nothing to do", "tunnel", "run")

	p.run("controller", "init", "--dir", "C", "--network", "demo")
	p.refused(1, "connection refused", "service", "list", "--controller", "https://127.0.0.1:"+p.ports(1)[0], "--identity", "C/admin.json")
	for name, c := range map[string]struct{ text, want string }{
		"unknown":  {"groups: [a]\ndialer:\n  dialDelai: 3s\n", "unknown.yaml:3: dialer.dialDelai: unknown key"},
		"type":     {"dialer:\n  dialDelay: soon\n", "type.yaml:2: dialer.dialDelay: soon: want a duration"},
		"value":    {"dialer:\n  minRetryInterval: 10m\n", "value.yaml:2: dialer.minRetryInterval"},
		"negative": {"\n\ndialer: {dialDelay: -1s}\n", "negative.yaml:3: dialer.dialDelay"},
	} {
		p.write(name+".yaml", c.text)
		p.refused(1, c.want, "controller", "run", "--dir", "C", "--config", name+".yaml")
		p.refused(1, c.want, "controller", "config", "check", "--config", name+".yaml")
	}
	p.write("C/controller.yaml", "listen: \"tls:127.0.0.1:1\"\nfoo: 1\n")
	p.refused(1, "C/controller.yaml:2: foo: unknown key", "controller", "run", "--dir", "C")
}
