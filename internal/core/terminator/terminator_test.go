// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

var start = time.Unix(1000, 0)

// at gives a reachable candidate of default precedence whose total is units.
func at(id ginnel.TerminatorID, units int64) Candidate {
	return Candidate{
		Terminator: ginnel.Terminator{ID: id, Router: ginnel.RouterID("r-" + id), Precedence: ginnel.DefaultPrecedence},
		Online:     true, Reachable: true, Path: ginnel.Units(units),
	}
}

func with(c Candidate, change func(*Candidate)) Candidate {
	change(&c)
	return c
}

func required(c *Candidate) { c.Precedence = ginnel.Required }
func failed(c *Candidate)   { c.Precedence = ginnel.Failed }
func offline(c *Candidate)  { c.Online, c.Reachable = false, false }
func quiesced(c *Candidate) { c.Quiesced = true }
func untold(c *Candidate)   { c.Untold = true }
func cutOff(c *Candidate)   { c.Reachable = false }

func TestChoose(t *testing.T) {
	instance := func(name string) func(*Candidate) { return func(c *Candidate) { c.Instance = name } }
	cases := []struct {
		name       string
		candidates []Candidate
		query      Query
		want       string
	}{
		{"least cost", []Candidate{at("a", 9), at("b", 8)}, Query{}, "b"},
		{"ties by id", []Candidate{at("b", 8), at("a", 8)}, Query{}, "a"},
		{"L44: required, whatever its cost", []Candidate{at("a", 0), with(at("b", math.MaxInt64), required)}, Query{}, "b"},
		{"failed last", []Candidate{with(at("a", 0), failed), at("b", 900)}, Query{}, "b"},
		{"failed if alone", []Candidate{with(at("a", 0), failed)}, Query{}, "a"},
		{"dynamic cost counts", []Candidate{with(at("a", 1), func(c *Candidate) { c.Dynamic = ginnel.Units(4) }), at("b", 4)}, Query{}, "b"},
		{"static cost counts", []Candidate{with(at("a", 1), func(c *Candidate) { c.StaticCost = ginnel.Units(4) }), at("b", 4)}, Query{}, "b"},
		{"set-ups in flight count", []Candidate{with(at("a", 1), func(c *Candidate) { c.InFlight = 2 }), at("b", 4)}, Query{}, "b"},
		{"sums do not overflow", []Candidate{with(at("a", math.MaxInt64), func(c *Candidate) { c.StaticCost = ginnel.MaxCost }), at("b", 1)}, Query{}, "b"},
		{"sticky", []Candidate{at("a", 1), at("b", 2)}, Query{Strategy: ginnel.Sticky, Sticky: "b"}, "b"},
		{"sticky without token", []Candidate{at("b", 2), at("a", 1)}, Query{Strategy: ginnel.Sticky}, "a"},
		{"sticky to one that is gone", []Candidate{at("a", 1), at("b", 2)}, Query{Strategy: ginnel.Sticky, Sticky: "c"}, "a"},
		{"sticky within precedence", []Candidate{at("a", 1), with(at("b", 2), failed)}, Query{Strategy: ginnel.Sticky, Sticky: "b"}, "a"},
		{"instance", []Candidate{at("a", 1), with(at("b", 2), instance("x"))}, Query{Instance: "x"}, "b"},
		{"any instance", []Candidate{with(at("b", 2), instance("x"))}, Query{}, "b"},
		{"offline left out", []Candidate{with(at("a", 1), offline), at("b", 2)}, Query{}, "b"},
		{"cut off left out", []Candidate{with(at("a", 1), cutOff), at("b", 2)}, Query{}, "b"},
		{"quiesced left out", []Candidate{with(at("a", 1), quiesced), at("b", 2)}, Query{}, "b"},
		{"sticky to a quiesced one", []Candidate{at("a", 1), with(at("b", 2), quiesced)}, Query{Strategy: ginnel.Sticky, Sticky: "b"}, "a"},
		{"one whose router does not know of it left out", []Candidate{with(at("a", 1), untold), at("b", 2)}, Query{}, "b"},
		{"routers do not know yet", []Candidate{with(at("a", 1), untold), with(at("b", 1), cutOff)}, Query{}, "BUSY: every terminator's router that can be reached is just being told of it: r-a, r-b"},
		{"its router is told and offline", []Candidate{with(with(at("a", 1), untold), offline)}, Query{}, "NO_ONLINE_TERMINATORS: no terminator's router is connected: r-a"},
		{"quiesced or offline", []Candidate{with(at("a", 1), quiesced), with(at("b", 1), offline)}, Query{}, "NO_ONLINE_TERMINATORS: every terminator's router is quiesced or not connected: r-a, r-b"},
		{"no path wins over quiesced", []Candidate{with(at("a", 1), quiesced), with(at("b", 1), cutOff)}, Query{}, "NO_PATH: no path to any terminator's router: r-a, r-b"},
		{"none", nil, Query{}, "NO_TERMINATORS: the service has no terminators"},
		{"all offline", []Candidate{with(at("a", 1), offline)}, Query{}, "NO_ONLINE_TERMINATORS: no terminator's router is connected: r-a"},
		{"no path wins over offline", []Candidate{with(at("a", 1), offline), with(at("b", 1), cutOff)}, Query{}, "NO_PATH: no path to any terminator's router: r-a, r-b"},
		{"no such instance", []Candidate{with(at("a", 1), offline)}, Query{Instance: "x"}, `NO_TERMINATOR_FOR_INSTANCE: no terminator has instance "x"`},
		{
			"instance offline, others online",
			[]Candidate{at("a", 1), with(with(at("b", 2), instance("x")), offline)},
			Query{Instance: "x"},
			"NO_ONLINE_TERMINATORS: no terminator's router is connected: r-b",
		},
		{"unknown strategy", []Candidate{at("a", 1)}, Query{Strategy: "fastest"}, `INVALID_STRATEGY: unknown strategy "fastest"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			eligible, picked, err := Choose(c.candidates, c.query, rand.New(rand.NewPCG(1, 1)))
			got := fmt.Sprint(err)
			if err == nil {
				got = string(eligible[picked].Terminator.ID)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// The picks of a strategy over many draws.
func TestShares(t *testing.T) {
	cases := []struct {
		strategy ginnel.Strategy
		want     map[ginnel.TerminatorID]float64
	}{
		{ginnel.Weighted, map[ginnel.TerminatorID]float64{"a": 0.75, "b": 0.25}},
		{ginnel.RandomPick, map[ginnel.TerminatorID]float64{"a": 0.5, "b": 0.5}},
		{ginnel.Smartrouting, map[ginnel.TerminatorID]float64{"a": 1}},
	}
	candidates := []Candidate{at("b", 30), at("a", 10), with(at("c", 0), failed)}
	for _, c := range cases {
		t.Run(string(c.strategy), func(t *testing.T) {
			const draws = 20000
			rng := rand.New(rand.NewPCG(7, 7))
			picks := map[ginnel.TerminatorID]int{}
			for range draws {
				eligible, i, err := Choose(candidates, Query{Strategy: c.strategy}, rng)
				if err != nil {
					t.Fatal(err)
				}
				picks[eligible[i].Terminator.ID]++
			}
			for _, id := range []ginnel.TerminatorID{"a", "b", "c"} {
				if got := float64(picks[id]) / draws; math.Abs(got-c.want[id]) > 0.02 {
					t.Errorf("%s: share %.3f, want %.3f", id, got, c.want[id])
				}
			}
		})
	}
}

// A cost under one unit weighs as one: no share is infinite.
func TestWeightedWithoutCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	first := 0
	for range 10000 {
		if _, i, _ := Choose([]Candidate{at("a", 0), at("b", 1)}, Query{Strategy: ginnel.Weighted}, rng); i == 0 {
			first++
		}
	}
	if first < 4700 || first > 5300 {
		t.Errorf("got %d of 10000, want about half", first)
	}
}

func TestTermsAddUp(t *testing.T) {
	c := at("a", 5)
	c.StaticCost, c.Dynamic, c.InFlight = ginnel.Units(1), ginnel.Units(2), 2
	got := c.Cost()
	if got.Static != ginnel.Units(1) || got.Dynamic != ginnel.Units(2) || got.InFlight != ginnel.Units(4) || got.Path != ginnel.Units(5) || got.Total != ginnel.Units(12) {
		t.Errorf("got %+v", got)
	}
}

// The choice against a scan that anyone can believe.
func TestSmartroutingIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var candidates []Candidate
		for i := range rapid.IntRange(0, 8).Draw(t, "count") {
			c := at(ginnel.TerminatorID(fmt.Sprintf("t%d", (i*3)%8)), rapid.Int64Range(0, 3).Draw(t, "path"))
			c.Precedence = ginnel.Precedence(rapid.IntRange(0, 2).Draw(t, "precedence"))
			c.StaticCost = ginnel.Units(rapid.Int64Range(0, 3).Draw(t, "static"))
			c.Online = rapid.Bool().Draw(t, "online")
			c.Reachable = c.Online && rapid.Bool().Draw(t, "reachable")
			candidates = append(candidates, c)
		}
		var want *Candidate
		for i, c := range candidates {
			sum := c.StaticCost + c.Path
			if c.Reachable && (want == nil || c.Precedence < want.Precedence ||
				c.Precedence == want.Precedence && (sum < want.StaticCost+want.Path ||
					sum == want.StaticCost+want.Path && c.ID < want.ID)) {
				want = &candidates[i]
			}
		}
		eligible, picked, err := Choose(candidates, Query{}, nil)
		if (err != nil) != (want == nil) || err == nil && eligible[picked].Terminator.ID != want.ID {
			t.Fatalf("got %v %v, want %v", eligible, err, want)
		}
	})
}

func TestFailures(t *testing.T) {
	var f Failures
	check := func(after time.Duration, want float64) {
		t.Helper()
		if got := f.Cost(start.Add(after)).Float(); math.Abs(got-want) > 1e-6 {
			t.Errorf("after %v: got %v, want %v", after, got, want)
		}
	}
	check(0, 0)
	f.Succeeded(start)
	check(0, 0)
	f.Failed(start)
	check(0, 20)
	check(-time.Minute, 20) // a clock that went back
	check(5*time.Minute, 10)
	f.Succeeded(start.Add(5 * time.Minute))
	check(5*time.Minute, 8)
	check(450*time.Second, 4) // still to 0 at ten minutes
	f.Failed(start.Add(450 * time.Second))
	check(450*time.Second, 24)
	check(750*time.Second, 12)
	check(1050*time.Second, 0)
	check(time.Hour, 0)
	for range 100 {
		f.Succeeded(start.Add(time.Hour))
	}
	check(time.Hour, 0)
}

// Opening and closing circuits leaves the cost what it was.
func TestL37_CircuitsLeaveNothing(t *testing.T) {
	var d Dynamic
	for range 10 {
		d.Opened(start)
	}
	if got := d.Cost(start); got != ginnel.Units(20) || d.Circuits() != 10 {
		t.Errorf("10 open: got %v and %d", got, d.Circuits())
	}
	for range 11 { // one close too many
		d.Closed()
	}
	if d != (Dynamic{failures: Failures{at: start}}) || d.Cost(start) != 0 {
		t.Errorf("all closed: got %+v", d)
	}
}

func TestReportKeepsTheCost(t *testing.T) {
	var d Dynamic
	d.Opened(start)
	d.Failed(start)
	d.Failed(start.Add(time.Minute))
	sent := start.Add(2 * time.Minute)
	other := start.Add(24 * time.Hour) // another machine's clock
	got := Reported(other, d.Load(sent))
	for _, after := range []time.Duration{0, time.Minute, 9 * time.Minute, time.Hour} {
		a, b := d.Cost(sent.Add(after)), got.Cost(other.Add(after))
		if (a-b).Float() > 1e-5 || (b-a).Float() > 1e-5 {
			t.Errorf("after %v: the router has %v, the controller %v", after, a, b)
		}
	}
	var none Dynamic
	if none.Load(start) != (Load{}) {
		t.Errorf("got %+v for nothing", none.Load(start))
	}
	odd := Reported(start, Load{Circuits: -3, FailureCost: ginnel.MaxCost, FailureLeft: 1e18})
	if odd.Circuits() != 0 || odd.Cost(start.Add(FailureMemory)) != 0 {
		t.Errorf("a report that makes no sense was taken: %+v", odd)
	}
	if odd.Cost(start.Add(time.Minute)) < 0 {
		t.Error("negative cost")
	}
}

// Required is taken though its cost is the highest there can be, and default costs
// nothing, whatever the strategy.
func TestL44_RequiredOfHighestCost(t *testing.T) {
	dear := with(at("z", int64(ginnel.MaxCost)), required)
	dear.StaticCost, dear.Dynamic, dear.InFlight = ginnel.MaxCost, ginnel.MaxCost, math.MaxInt32
	candidates := []Candidate{at("a", 0), dear, with(at("b", 0), failed)}
	rng := rand.New(rand.NewPCG(44, 44))
	for _, s := range []ginnel.Strategy{"", ginnel.Smartrouting, ginnel.Weighted, ginnel.RandomPick, ginnel.Sticky} {
		for range 100 {
			eligible, picked, err := Choose(candidates, Query{Strategy: s, Sticky: "a"}, rng)
			if err != nil || eligible[picked].Terminator.ID != "z" {
				t.Fatalf("%q: got %v of %v, %v", s, picked, eligible, err)
			}
			if total := eligible[picked].Total; total != ginnel.MaxCost {
				t.Fatalf("%q: it costs %v", s, total)
			}
		}
	}
}

// L40 among terminators: 2e9 and 2e9 against 1, and sums beyond all bounds.
func TestL40_SumsDoNotOverflow(t *testing.T) {
	for _, units := range []int64{2e9, int64(ginnel.MaxCost)} {
		dear := at("a", units)
		dear.StaticCost, dear.Dynamic = ginnel.Units(units), ginnel.Units(units)
		eligible, picked, err := Choose([]Candidate{dear, at("b", 1)}, Query{}, nil)
		if err != nil || eligible[picked].Terminator.ID != "b" || eligible[1].Total < ginnel.Units(2e9) {
			t.Errorf("%d: got %v of %v, %v", units, picked, eligible, err)
		}
	}
}

func TestEligibleOfAProtocol(t *testing.T) {
	all := []Candidate{
		{Terminator: ginnel.Terminator{ID: "a", Router: "r1", Address: "tcp:h:1"}, Online: true, Reachable: true},
		{Terminator: ginnel.Terminator{ID: "b", Router: "r1", Address: "udp:h:1"}, Online: true, Reachable: true},
		{Terminator: ginnel.Terminator{ID: "c", Router: "r2", Host: "bob"}, Online: true, Reachable: true},
		{Terminator: ginnel.Terminator{ID: "d", Router: "r2", Host: "bob", Protocol: ginnel.UDP}, Online: true, Reachable: true},
	}
	for _, c := range []struct {
		from     []Candidate
		protocol ginnel.Protocol
		want     string
		code     ginnel.Code
	}{
		{all, "", "ac", ginnel.CodeOK},
		{all, ginnel.TCP, "ac", ginnel.CodeOK},
		{all, ginnel.UDP, "bd", ginnel.CodeOK},
		{all[:1], ginnel.UDP, "", ginnel.RouterErrMisconfiguredTerminator},
		{all[1:2], "", "", ginnel.RouterErrMisconfiguredTerminator},
		{nil, ginnel.UDP, "", ginnel.NoTerminators},
	} {
		got := ""
		eligible, err := Eligible(c.from, Query{Protocol: c.protocol})
		for _, e := range eligible {
			got += string(e.Terminator.ID)
		}
		if got != c.want || (err == nil) != (c.code == ginnel.CodeOK) || err != nil && err.Code != c.code {
			t.Errorf("%q: got %q, %v, want %q, %v", c.protocol, got, err, c.want, c.code)
		}
	}
}
