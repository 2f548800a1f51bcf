// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

func TestChoose(t *testing.T) {
	cases := []struct {
		name, network string
		x             Exclusions
		want          string
	}{
		{"path cost decides", "AB=5 AC=1 t1@B t2@C", Exclusions{}, "t2 [A C] 11"},
		{"static cost decides", "AB=5 AC=1 t1@B t2@C=9", Exclusions{}, "t1 [A B] 15"},
		{"excluded terminator", "AB=5 AC=1 t1@B t2@C", Exclusions{Terminators: []ginnel.TerminatorID{"t2"}}, "t1 [A B] 15"},
		{
			"excluded router", "AB=5 AC=1 BC=1 t2@C",
			Exclusions{Exclusions: path.Exclusions{Routers: []ginnel.RouterID{"C"}}},
			"NO_PATH: ingress router A: no path to any terminator's router: C",
		},
		{"excluded link", "AB=5 AC=1 BC=1 t2@C", Exclusions{Exclusions: path.Exclusions{Links: []ginnel.LinkID{"AC"}}}, "t2 [A B C] 26"},
		{"all excluded", "AB=5 t1@B", Exclusions{Terminators: []ginnel.TerminatorID{"t1"}}, "NO_TERMINATORS: the service has no terminators"},
		{"ingress gone", "BC=1 t1@B", Exclusions{}, "NO_PATH: ingress router A: no path to any terminator's router: B"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			st := readNetwork(t, c.network)
			choice, err := st.Choose(c.x)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprintf("%s %v %v", choice.Terminator.ID, choice.Path.Routers, choice.Path.Cost)
				if len(choice.Hops) != len(choice.Path.Links) || len(choice.Candidates) == 0 {
					t.Errorf("choice without its reasons: %+v", choice)
				}
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestOfflineRouterIsNoCandidate(t *testing.T) {
	st := readNetwork(t, "AB=1 t1@B")
	st.routers[1].Connected = false
	if _, err := st.Choose(Exclusions{}); err == nil || err.Code != ginnel.NoOnlineTerminators {
		t.Errorf("got %v, want NO_ONLINE_TERMINATORS", err)
	}
}

func BenchmarkChoose(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var routers []path.Router
	var links []ginnel.Link
	for i := range 1000 {
		routers = append(routers, path.Router{ID: ginnel.RouterID(fmt.Sprintf("router-%d", i)), Connected: true})
	}
	for i := range 10000 {
		links = append(links, ginnel.Link{
			ID: ginnel.LinkID(fmt.Sprintf("link-%d", i)), A: routers[rng.IntN(1000)].ID, B: routers[rng.IntN(1000)].ID,
			RTT: ginnel.Duration(rng.Int64N(1e8)), Measured: true, Up: true,
		})
	}
	trees := path.NewTrees(path.New(ginnel.MinRouterCost, routers, links))
	var candidates []terminator.Candidate
	for i := range 5 {
		candidates = append(candidates, terminator.Candidate{Terminator: ginnel.Terminator{
			ID: ginnel.TerminatorID(fmt.Sprintf("t%d", i)), Router: routers[i*100].ID,
		}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Choose(trees, "router-999", candidates, terminator.Query{}, Exclusions{}, rng); err != nil {
			b.Fatal(err)
		}
	}
}

func TestUnsure(t *testing.T) {
	for _, code := range []ginnel.Code{ginnel.NoTerminators, ginnel.NoOnlineTerminators, ginnel.NoTerminatorForInstance, ginnel.NoPath} {
		if got := Unsure(ginnel.Errorf(code, "none"), "new"); got.Code != ginnel.Busy || got.RetryAfter != ginnel.Duration(UnsureRetry) || got.Message != "new: none" {
			t.Errorf("%v: got %+v, want BUSY", code, got)
		}
	}
	for _, code := range []ginnel.Code{ginnel.InvalidStrategy, ginnel.NotAuthorized, ginnel.RouterResponseTimeout} {
		if got := Unsure(ginnel.Errorf(code, "x"), "new"); got.Code != code {
			t.Errorf("%v: got %+v, want it unchanged", code, got)
		}
	}
}
