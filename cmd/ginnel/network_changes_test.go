// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

// changes: what was created can be changed, and what no flag names stays.
func (n *network) changes() {
	n.run("service", "create", "odd", "--role", "internal", "--intercept", "odd.internal:80")
	n.run("service", "update", "odd", "--strategy", "weighted", "--attempts", "2")
	if o := n.objects("service", "show", "odd")[0]; o["strategy"] != "weighted" || o["attempts"] != 2.0 || o["intercept"] == nil || o["roles"] == nil {
		n.Errorf("service: %v", o)
	}
	n.run("service", "update", "odd", "--role", "", "--intercept", "")
	if o := n.objects("service", "show", "odd")[0]; o["strategy"] != "weighted" || o["intercept"] != nil || o["roles"] != nil {
		n.Errorf("service without role and intercept: %v", o)
	}
	n.refused(1, "want smartrouting, weighted", "service", "update", "odd", "--strategy", "best")
	n.refused(1, "service nope: not found", "service", "update", "nope", "--attempts", "1")

	id := n.objects("terminator", "create", "odd", "--router", "r2", "--address", "tcp:127.0.0.1:9", "--cost", "7")[0]["id"].(string)
	n.run("terminator", "update", id, "--precedence", "failed", "--instance", "one", "--check", "http", "--check-path", "/up", "--check-failures", "5")
	o := n.objects("terminator", "show", id)[0]
	check, _ := o["check"].(map[string]any)
	if o["precedence"] != "failed" || o["instance"] != "one" || o["static_cost"] != 7e6 || check["path"] != "/up" || check["failures"] != 5.0 || check["successes"] != 2.0 {
		n.Errorf("terminator: %v", o)
	}
	n.run("terminator", "update", id, "--cost", "9", "--address", "tcp:127.0.0.1:10", "--check", "none")
	if o := n.objects("terminator", "show", id)[0]; o["precedence"] != "failed" || o["static_cost"] != 9e6 || o["address"] != "tcp:127.0.0.1:10" || o["check"] != nil || o["cost"] != 9e6 {
		n.Errorf("terminator without a check: %v", o)
	}
	n.refused(2, "want required, default or failed", "terminator", "update", id, "--precedence", "best")
	n.refused(2, "a cost is not negative", "terminator", "update", id, "--cost", "-1")
	n.refused(1, "terminator nope: not found", "terminator", "update", "nope", "--cost", "1")
	n.run("service", "delete", "odd")

	n.run("identity", "create", "carl", "--role", "staff", "--edge-router", "r1")
	n.run("identity", "update", "carl", "--role", "guest", "--role", "night", "--read-only", "--edge-router", "r1", "--edge-router", "r2")
	if o := n.objects("identity", "show", "carl")[0]; len(o["roles"].([]any)) != 2 || o["read_only"] != true || o["admin"] != nil {
		n.Errorf("identity: %v", o)
	}
	if o := n.objects("policy", "show", "edge-carl")[0]; len(o["routers"].([]any)) != 2 || o["kind"] != "edge-router" {
		n.Errorf("edge routers: %v", o)
	}
	n.run("identity", "update", "carl", "--admin", "--read-only=false", "--role", "", "--edge-router", "")
	if o := n.objects("identity", "show", "carl")[0]; o["roles"] != nil || o["read_only"] != nil || o["admin"] != true {
		n.Errorf("identity without roles: %v", o)
	}
	n.refused(1, "policy edge-carl: not found", "policy", "show", "edge-carl")
	n.run("identity", "delete", "carl")

	n.run("router", "update", "r2", "--role", "west", "--cost", "12")
	if o := n.objects("router", "show", "r2")[0]; len(o["roles"].([]any)) != 1 || o["cost"] != 12e6 || o["ctrl_listeners"] == nil {
		n.Errorf("router: %v", o)
	}
	n.run("router", "update", "r2", "--role", "", "--cost", "0")

	n.run("link", "update", "r1/r2/0", "--cost", "20")
	if o := n.objects("link", "show", "r1/r2/0")[0]; o["stored"] != true {
		n.Errorf("link: %v", o)
	}
	n.await("the link costs more", func() bool { return n.objects("link", "show", "r1/r2/0")[0]["static_cost"] == 20e6 })
	n.run("link", "update", "r1/r2/0", "--cost", "1")
	n.refused(2, "want ROUTER/ROUTER/NAME", "link", "update", "r1", "--cost", "1")
	n.refused(2, "cost", "link", "update", "r1/r2/0")

	n.run("policy", "create", "odd", "--kind", "dial", "--identity", "#night", "--service", "#all")
	n.run("policy", "update", "odd", "--identity", "#staff", "--identity", "#night", "--all-of")
	if o := n.objects("policy", "show", "odd")[0]; len(o["identities"].([]any)) != 2 || o["all_of"] != true || o["services"] == nil {
		n.Errorf("policy: %v", o)
	}
	n.refused(1, "name at least one", "policy", "update", "odd", "--identity", "")
	n.refused(1, "policy nope: not found", "policy", "update", "nope", "--all-of")
	n.run("policy", "delete", "odd")
}
