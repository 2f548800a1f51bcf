// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/sdk"
)

func TestUseOfTheFabricsCommands(t *testing.T) {
	t.Setenv("GINNEL_IDENTITY", "")
	missing := filepath.Join(t.TempDir(), "nobody.json")
	token := newIssuer(t).token(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"}, time.Hour)
	for _, tt := range []struct {
		args   []string
		status int
		text   string
	}{
		{[]string{"dial"}, 2, "ginnel dial: give SERVICE"},
		{[]string{"dial", "web"}, 2, "--identity"},
		{[]string{"dial", "web", "--identity", missing}, 1, "nobody.json"},
		{[]string{"dial", "web", "--identity", missing}, 1, "hint: `ginnel identity enroll TOKENFILE > FILE` makes one"},
		{[]string{"tunnel", "run", "--socks", "127.0.0.1:0", "--identity", token}, 1, "hint: that is a token: `ginnel identity enroll " + token + " > FILE`"},
		{[]string{"dial", "web", "--identity", missing, "--timeout", "0s"}, 2, "--timeout"},
		{[]string{"listen", "web"}, 2, "--identity"},
		{[]string{"listen", "web", "--forward", "8080", "--identity", missing}, 2, "--forward"},
		{[]string{"listen", "web", "--precedence", "best", "--identity", missing}, 2, "--precedence"},
		{[]string{"listen", "web", "--cost", "-1", "--identity", missing}, 2, "--cost"},
		{[]string{"identity", "enroll"}, 2, "give TOKENFILE"},
		{[]string{"identity", "enroll", missing}, 1, "nobody.json"},
		{[]string{"tunnel", "run"}, 2, "nothing to do"},
		{[]string{"tunnel", "run", "--socks", "127.0.0.1:0"}, 2, "--identity"},
		{[]string{"tunnel", "run", "--host", "web"}, 2, "--host"},
		{[]string{"tunnel", "run", "--host", "web=tls:127.0.0.1:53"}, 2, "--host"},
		{[]string{"tunnel", "run", "--listen", "127.0.0.1:1"}, 2, "--listen"},
		{[]string{"tunnel", "run", "--upstream", "resolver"}, 2, "--upstream"},
		{[]string{"tunnel", "run", "--range", "100.64.0.0"}, 2, "--range"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := run(tt.args, strings.NewReader(""), &stdout, &stderr)
			if status != tt.status || !strings.Contains(stderr.String(), tt.text) || stdout.Len() > 0 {
				t.Errorf("got %d, %q, %q; want %d with %q", status, stderr.String(), stdout.String(), tt.status, tt.text)
			}
		})
	}
}

func TestExplainText(t *testing.T) {
	x := &sdk.Explain{
		EdgeRouters: []sdk.EdgeRouter{{ID: "r1", Connected: true, RTT: ginnel.Duration(1500 * time.Microsecond), Chosen: true}, {ID: "r2", Error: "refused"}},
		Weighed: ginnel.Weighed{
			Candidates: []ginnel.Candidate{{Terminator: "web@r2", Precedence: "default", Path: ginnel.Units(11), Total: ginnel.Units(11), Chosen: true}},
			Path:       []ginnel.RouterID{"r1", "r2"},
			Links:      []ginnel.LinkID{"r1/r2/0"},
			Hops:       []ginnel.Hop{{Router: "r1"}, {Router: "r2", Link: "r1/r2/0", Cost: ginnel.Units(11), Route: ginnel.Duration(time.Millisecond)}},
			Controller: []ginnel.Step{{Name: "verify", Took: ginnel.Duration(time.Microsecond * 100), Detail: "signature"}, {Name: "decide", Start: ginnel.Duration(100 * time.Microsecond), Took: ginnel.Duration(50 * time.Microsecond), Detail: "costs"}},
		},
		Steps: []ginnel.Step{
			{Name: "edge router", Took: ginnel.Duration(time.Millisecond), Detail: "r1"},
			{Name: "dial request", Start: ginnel.Duration(time.Millisecond), Took: ginnel.Duration(2 * time.Millisecond), Detail: "controller c1"},
			{Name: "handshake", Start: ginnel.Duration(3 * time.Millisecond), Took: ginnel.Duration(time.Millisecond), Detail: "done"},
		},
	}
	want := `1 name          web: the service's own name, nothing to resolve
2 address       none needed
3 connection    made by this program itself
4 edge router   r1 (at 0s, took 1ms)
                * r1: round trip 1.5ms
                  r2: not connected refused
5 dial request  controller c1 (at 1ms, took 2ms)
6 path          r1 -(r1/r2/0)- r2 (at 100µs, took 50µs)
                * web@r2: default, static 0 + dynamic 0 + path 11 = 11
7 routes        2 routers, the last answered after 1ms
                r1 over -: cost 0, answered in 0s
                r2 over r1/r2/0: cost 11, answered in 1ms
8 answers       2 steps at the controller
                at 0s verify, took 100µs: signature
                at 100µs decide, took 50µs: costs
9 data          circuit c7, end to end with router/r2: done (at 3ms, took 1ms)
`
	if got := explainText("web", "c7", ginnel.Peer{Role: ginnel.RoleRouter, ID: "r2"}, x); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
