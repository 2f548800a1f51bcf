// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

// TestParse wants every mistake to be told with what stands there.
func TestParse(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"routers: [{name: r1, spin: 3}]", "f:1: routers[0].spin: unknown key"},
		{"routers:\n  - name: r1\n    spin: 3", "f:3: routers[0].spin: unknown key"},
		{"routers: [{name: r1, dial: nobody}]", `f:1: routers[0].dial: "nobody": want controller or router`},
		{"routers:\n  - name: r1\n  - name: r1", "f:3: routers[1].name: there is a router r1, and commands take one name for all"},
		{"routers: [{name: c1}]", "routers[0].name: there is a controller c1"},
		{"routers: [{name: 'r 1'}]", "routers[0].name: name"},
		{"links: [{a: r1, b: r2}]", `links[0].a: there is no router "r1"`},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: -1s}]", "f:2: links[0].latency: -1s is negative"},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: soon}]", "f:2: links[0].latency: soon: want a duration"},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: 2}]", "f:2: links[0].latency: 2: want a duration"},
		{"routers: [{name: r1, cost: much}]", "routers[0].cost: much: want a whole number"},
		{"routers: [{name: r1, noTraversal: 3}]", "routers[0].noTraversal: 3: want true or false"},
		{"identities: [{name: a, edgeRouters: [r1]}]", `identities[0].edgeRouters[0]: there is no router "r1"`},
		{"hosts: [{identity: a, service: s, address: 'tcp:127.0.0.1:1'}]", `hosts[0].service: there is no service "s"`},
		{"hosts: [{identity: 'a b', service: s, address: 'tcp:127.0.0.1:1'}]", "hosts[0].identity: name"},
		{"services: [{name: s}]\nhosts: [{identity: a, service: s, address: 'sctp:127.0.0.1:1'}]", "f:2: hosts[0].address: "},
		{"services: [{name: s}, {name: s}]", "services[1].name: there is a service s already"},
		{"services: [{name: s, terminators: [{router: r9}]}]", `services[0].terminators[0].router: there is no router "r9"`},
		{"controllers: [{name: c1, config: {spin: 1}}]", "f:1: controllers[0].config.spin: unknown key"},
		{"controllers:\n  - name: c1\n    config:\n      # why\n      dialer:\n        maxWorkers: 0\n", "f:6: controllers[0].config.dialer.maxWorkers: 0 is less"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s, address: 'tcp:a:1', allow: ['a:1']}]", "allow stands in place of address"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s, allow: ['a']}]", "hosts[0].address: allow"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s}]", "hosts[0].address: address"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s, address: 'tcp:a:1', cost: -1}]", "hosts[0].cost: -1 is negative"},
		{"tunnelers: [{identity: eve, gateway: [10.0.0.0/8]}]", "tunnelers[0]: gateway"},
		{"tunnelers: [{identity: eve, intercept: true, range: x}]", `tunnelers[0]: range "x"`},
		{"tunnelers: [{identity: eve, upstreams: [x]}]", `tunnelers[0]: upstream "x"`},
		{"tunnelers: [{identity: eve, intercept: true}, {identity: bob, intercept: true}]", "tunnelers[1].intercept: one tunneler at most can intercept"},
		{"{", "f:1: "},
		{"\x00", "f:1: "},
	} {
		_, err := Parse("f", []byte(test.text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %q", test.text, err, test.want)
		}
	}
}

// TestParse_Completes wants what is left out to be filled in, in YAML and JSON.
func TestParse_Completes(t *testing.T) {
	for _, text := range []string{
		"routers: [{name: r1}]\nservices: [{name: s}]\nhosts: [{identity: bob, service: s, address: 'tcp:127.0.0.1:1'}]\ntunnelers: [{identity: eve}]\n" +
			"controllers: [{name: c1}, {name: c2, config: {dialer: {maxWorkers: 3}}}, {name: c3, config: {dialer: {dialDelay: 2s}}}]",
		`{"routers": [{"name": "r1"}], "services": [{"name": "s"}], "hosts": [{"identity": "bob", "service": "s", "address": "tcp:127.0.0.1:1"}],
		"tunnelers": [{"identity": "eve"}], "controllers": [{"name": "c1"}, {"name": "c2", "config": {"dialer": {"maxWorkers": 3}}},
		{"name": "c3", "config": {"dialer": {"dialDelay": "2s"}}}]}`,
	} {
		f, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if f.Routers[0].Dial != dialController || f.identity("bob") == nil || f.identity("eve") == nil || f.Network != "lab" {
			t.Errorf("not completed: %+v", f)
		}
		if len(f.Policies) != 1 || f.Policies[0].Kind != "bind" || f.Policies[0].Name != "bind-1" {
			t.Errorf("policies %+v, want one to bind", f.Policies)
		}
		for i, want := range []dialer.Config{
			{DialDelay: 0, MaxWorkers: 64}, {DialDelay: 0, MaxWorkers: 3}, {DialDelay: 2 * time.Second, MaxWorkers: 64},
		} {
			if got := f.Controllers[i].config.Dialer; got.DialDelay != want.DialDelay || got.MaxWorkers != want.MaxWorkers {
				t.Errorf("%s: dialDelay %s and maxWorkers %d, want %s and %d", f.Controllers[i].Name, got.DialDelay, got.MaxWorkers, want.DialDelay, want.MaxWorkers)
			}
		}
	}
}
