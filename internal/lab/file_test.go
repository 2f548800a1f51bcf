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
		{"routers: [{name: r1, spin: 3}]", `spin`},
		{"routers:\n  - name: r1\n    spin: 3", `[3:5] unknown field "spin"`},
		{"routers: [{name: r1, dial: nobody}]", `router r1: dial "nobody": want controller or router`},
		{"routers: [{name: r1}, {name: r1}]", "there is a router of this name"},
		{"routers: [{name: c1}]", "there is a controller of this name"},
		{"routers: [{name: 'r 1'}]", "router"},
		{"links: [{a: r1, b: r2}]", `link r1 r2: there is no router "r1"`},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: -1s}]", "negative"},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: soon}]", `"soon": want a duration such as 43ms`},
		{"routers: [{name: r1}, {name: r2}]\nlinks: [{a: r1, b: r2, latency: 2}]", `"2": want a duration such as 43ms`},
		{"routers: [{name: r1, cost: much}]", `[1:28] "much": want a number`},
		{"routers: [{name: r1, noTraversal: 3}]", `[1:35] "3": want true or false`},
		{"identities: [{name: a, edgeRouters: [r1]}]", `identity a: there is no router "r1"`},
		{"hosts: [{identity: a, service: s, address: 'tcp:127.0.0.1:1'}]", `there is no service "s"`},
		{"services: [{name: s}]\nhosts: [{identity: a, service: s, address: 'sctp:127.0.0.1:1'}]", "host a"},
		{"services: [{name: s}, {name: s}]", "twice"},
		{"controllers: [{name: c1, config: {spin: 1}}]", `config of controller c1: line 1, column 2: unknown field "spin"`},
		{"controllers:\n  - name: c1\n    config:\n      # why\n      dialer:\n        maxWorkers: 0\n", "config of controller c1:6: dialer.maxWorkers"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s, address: 'tcp:a:1', allow: ['a:1']}]", "allow stands in place of address"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s, allow: ['a']}]", "host bob: allow"},
		{"services: [{name: s}]\nhosts: [{identity: bob, service: s}]", "host bob: address"},
		{"tunnelers: [{identity: eve, gateway: [10.0.0.0/8]}]", "tunneler of eve: gateway"},
		{"tunnelers: [{identity: eve, intercept: true, range: x}]", `tunneler of eve: range "x"`},
		{"tunnelers: [{identity: eve, upstreams: [x]}]", `tunneler of eve: upstream "x"`},
		{"tunnelers: [{identity: eve, intercept: true}, {identity: bob, intercept: true}]", "one at most can intercept"},
		{"{", ""},
		{"\x00", ""},
	} {
		_, err := Parse([]byte(test.text))
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
		f, err := Parse([]byte(text))
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
