// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

func TestExplanationText(t *testing.T) {
	e := api.Explanation{
		Circuit: "c7", Service: "web", Client: "alice", Ingress: "r1",
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: ginnel.Duration(2 * time.Millisecond),
		Peer: "router/r2",
		Weighed: ginnel.Weighed{
			Candidates: []ginnel.Candidate{{Terminator: "web@r2", Precedence: "default", Path: ginnel.Units(11), Total: ginnel.Units(11), Chosen: true}},
			Path:       []ginnel.RouterID{"r1", "r2"},
			Links:      []ginnel.LinkID{"r1/r2/0"},
			Hops:       []ginnel.Hop{{Router: "r1"}, {Router: "r2", Link: "r1/r2/0", Cost: ginnel.Units(11), Route: ginnel.Duration(time.Millisecond)}},
			Controller: []ginnel.Step{{Name: "verify", Took: ginnel.Duration(100 * time.Microsecond), Detail: "signature"}},
		},
	}
	steps := `6 path          r1 -(r1/r2/0)- r2
                * web@r2: default, static 0 + dynamic 0 + path 11 = 11
7 routes        2 routers, the last answered after 1ms
                r1 over -: cost 0, answered in 0s
                r2 over r1/r2/0: cost 11, answered in 1ms
8 answers       1 steps at the controller
                at 0s verify, took 100µs: signature
`
	want := "5 dial request  circuit c7: service web for alice over r1, at 2026-01-02T03:04:05Z\n" + steps +
		"9 outcome       OK after 2ms: end to end with router/r2\n"
	if got := explanationText(e); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	e.Resume, e.Code, e.Cause = 3, ginnel.NoPath, "no way\nat all"
	want = "5 resume 3      circuit c7: service web for alice over r1, at 2026-01-02T03:04:05Z\n" + steps +
		"9 outcome       NO_PATH after 2ms: no way\\nat all\n"
	if got := explanationText(e); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	refused := api.Explanation{
		Circuit: "c8", Service: "nope", Client: "alice", Ingress: "r1", At: e.At, Took: e.Took,
		Code: ginnel.InvalidService, Cause: `there is no service "nope"`,
	}
	want = "5 dial request  circuit c8: service nope for alice over r1, at 2026-01-02T03:04:05Z\n" +
		"9 outcome       INVALID_SERVICE after 2ms: there is no service \"nope\"\n"
	if got := explanationText(refused); got != want {
		t.Errorf("a dial that was refused at once: got\n%s\nwant\n%s", got, want)
	}
}
