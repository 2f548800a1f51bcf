// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestDistribution(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100-i) * time.Millisecond // largest first
	}
	for name, c := range map[string]struct {
		samples []time.Duration
		want    Distribution
	}{
		"none":    {nil, Distribution{}},
		"one":     {[]time.Duration{1500 * time.Microsecond}, Distribution{1, 1.5, 1.5, 1.5, 1.5}},
		"three":   {[]time.Duration{3e6, 1e6, 2e6}, Distribution{3, 2, 3, 3, 3}},
		"hundred": {hundred, Distribution{100, 50, 90, 99, 100}},
	} {
		if got := distribution(c.samples); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 2}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{1, 100, 2, 3}, 2.5},
	} {
		if got := median(slices.Clone(c.values)); got != c.want {
			t.Errorf("%v: got %g, want %g", c.values, got, c.want)
		}
	}
}

// TestTally has one bad round, and a third side that was measured in one round
// alone: medians and ratios follow neither.
func TestTally(t *testing.T) {
	tl := tally{rounds: map[string][]map[string]float64{}}
	for round, values := range [][]float64{{2, 4}, {3, 6, 12}, {900, 1}} {
		for i, v := range values {
			tl.add(Data, round, string(rune('a'+i)), []value{{"x", "s", v}})
		}
	}
	want := Figure{
		Section: Data, Name: "x", Unit: "s",
		Values: map[string]float64{"a": 3, "b": 4, "c": 12},
		Ratios: map[string]float64{"b": 0.5, "c": 0.25},
	}
	if got := tl.figures([]string{"a", "b", "c", "none"}); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCompare(t *testing.T) {
	server := run(t, Server{}.Serve)
	var used time.Duration
	usage := func() (Usage, error) {
		used += time.Second
		return Usage{CPU: used, Memory: 1 << 20}, nil
	}
	var order []string
	plan := Plan{Rounds: 2, Duration: brief, Streams: 2, Connects: 3, InFlight: 2, Tell: func(round int, side, what string) {
		if what == OneUp {
			order = append(order, fmt.Sprint(side, round))
		}
	}}
	both := func(name string, dial Dial) Side {
		s := Side{Name: name, Dial: dial, Usage: usage, Few: true}
		full := s
		s.Full = &full
		return s
	}
	relay := both("relay", chain(t, 1))
	relay.Direct, relay.Longer = to(server), chain(t, 2)
	got, err := Compare(t.Context(), []Side{relay, both("tcp", to(server)), {Name: "bare", Dial: to(server)}}, plan)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"relay1", "tcp1", "bare1", "tcp2", "bare2", "relay2"}; !slices.Equal(order, want) {
		t.Errorf("got the order %v, want %v", order, want)
	}
	if !slices.Equal(got.Sides, []string{"relay", "tcp", "bare"}) || got.Rounds != 2 {
		t.Errorf("got %+v", got)
	}
	for sides, names := range map[int][]string{
		3: {OneUp, OneDown, ManyUp, LeastUp, ManyDown, LeastDown, ConnectP50, ConnectP99, PerSecond, TripP50, TripP99, LoadedP50, LoadedP99},
		2: {
			CPUOne, CPUMany, MemoryMany, CPUConnect, ConnectP50Full, ConnectP99Full, PerSecondFull, CPUConnectFull,
			TwoUp, TwoDown, FourUp, FourDown, LeastTwoUp, LeastTwoDown, LeastFourUp, LeastFourDown,
		},
		1: {DirectP50, DirectP99, Hop},
	} {
		for _, name := range names {
			f := got.Figure(name)
			if len(f.Values) != sides || len(f.Ratios) != sides-1 || f.Unit == "" {
				t.Errorf("%s: got %+v, want %d sides", name, f, sides)
			}
			for side, v := range f.Values {
				if v <= 0 && name != Hop || side != "relay" && f.Ratios[side] <= 0 {
					t.Errorf("%s: got %+v", name, f)
				}
			}
		}
	}
	if len(got.Failures) != 0 {
		t.Errorf("got failures %+v", got.Failures)
	}
	if f := got.Figure("none"); f.Name != "" {
		t.Errorf("got %+v for an unknown name", f)
	}
}

// TestCompareOneSection counts handshakes: each way has its own.
func TestCompareOneSection(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	var resumed, full atomic.Int64
	way := func(n *atomic.Int64) Side {
		return Side{Name: "a", Dial: func(ctx context.Context) (net.Conn, error) {
			n.Add(1)
			return dial(ctx)
		}}
	}
	a, b := way(&resumed), way(&full)
	a.Handshakes = func(context.Context) (Handshakes, error) { return Handshakes{Resumed: float64(resumed.Load())}, nil }
	b.Handshakes = func(context.Context) (Handshakes, error) { return Handshakes{Full: float64(full.Load())}, nil }
	a.Full = &b
	plan := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 1, InFlight: 2, Sections: []string{Dialing}}
	got, err := Compare(t.Context(), []Side{a, {Name: "b", Dial: dial}}, plan)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{Resumed: 1, ResumedFull: 0} {
		if f := got.Figure(name); len(f.Values) != 1 || f.Values["a"] != want || f.Unit == "" {
			t.Errorf("%s: got %+v, want %g of the handshakes of one side", name, f, want)
		}
	}
	for _, f := range got.Figures {
		if f.Section != Dialing {
			t.Errorf("got %+v of another section", f)
		}
	}
}

// TestCompareGoesOn has a network that refuses now and then.
func TestCompareGoesOn(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	var n atomic.Int64
	fragile := Side{Name: "fragile", Dial: func(ctx context.Context) (net.Conn, error) {
		if n.Add(1)%7 == 0 {
			return nil, errFragile
		}
		return dial(ctx)
	}}
	plan := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 20, InFlight: 2}
	got, err := Compare(t.Context(), []Side{fragile, {Name: "tcp", Dial: dial}}, plan)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, f := range got.Failures {
		if f.Side != "fragile" || !strings.HasSuffix(f.First, errFragile.Error()) {
			t.Errorf("got %+v", f)
		}
		counts[f.Measure] = f.Count
	}
	if c := counts["connect"]; c < 2 || c > 3 {
		t.Errorf("got %v: %d of 20 connections failed, want each 7th", counts, c)
	}
}

// TestCompareLeavesOut has a side that breaks after it was tried: what it cannot
// do has no figure, and why is told.
func TestCompareLeavesOut(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	var n atomic.Int64
	breaks := Side{Name: "breaks", Dial: func(ctx context.Context) (net.Conn, error) {
		if n.Add(1) > 5 {
			return nil, errFragile
		}
		return dial(ctx)
	}}
	plan := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 1, InFlight: 1, Sections: []string{Dialing}}
	got, err := Compare(t.Context(), []Side{{Name: "tcp", Dial: dial}, breaks}, plan)
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Figure(PerSecond); len(f.Values) != 1 || f.Values["tcp"] <= 0 || len(f.Ratios) != 0 {
		t.Errorf("got %+v", f)
	}
	for _, f := range got.Failures {
		if f.Side != "breaks" || f.Count != tries || !strings.HasSuffix(f.First, errFragile.Error()) {
			t.Errorf("got %+v", f)
		}
	}
	if len(got.Failures) != 2 {
		t.Errorf("got failures %+v of connect and rate", got.Failures)
	}
}

func TestCompareFails(t *testing.T) {
	fails := Side{Name: "gone", Dial: func(context.Context) (net.Conn, error) { return nil, errFragile }}
	good := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 1, InFlight: 1}
	if _, err := Compare(t.Context(), []Side{fails}, good); !errors.Is(err, errFragile) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v", err)
	}
	twice := Side{Name: "tcp", Dial: to(run(t, Server{}.Serve))}
	if _, err := Compare(t.Context(), []Side{twice, twice}, good); err == nil {
		t.Error("no error of two sides with one name")
	}
	for _, change := range []func(*Plan){
		func(p *Plan) { p.Rounds = 0 },
		func(p *Plan) { p.Duration = 0 },
		func(p *Plan) { p.Duration = time.Hour },
		func(p *Plan) { p.Streams = MaxStreams + 1 },
		func(p *Plan) { p.Connects = 0 },
		func(p *Plan) { p.InFlight = 0 },
		func(p *Plan) { p.Sections = []string{"x"} },
	} {
		bad := good
		change(&bad)
		if _, err := Compare(t.Context(), []Side{fails}, bad); err == nil || errors.Is(err, errFragile) {
			t.Errorf("%+v: got %v", bad, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	const line = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 5 0 99 777 3 18446744073709551615 1 2\n"
	if parent, got, err := parseStat(line, 4096); err != nil || parent != 7 || got != (Usage{1750 * time.Millisecond, 3 * 4096}) {
		t.Errorf("got parent %d, %+v, %v", parent, got, err)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1 2", strings.Replace(line, "150", "x", 1), strings.Replace(line, "25", "-", 1)} {
		if _, got, err := parseStat(bad, 4096); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}

func TestUsageOfChildren(t *testing.T) {
	found := map[int]status{}
	for pid, parent := range map[int]int{1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 9: 1} {
		found[pid] = status{parent, Usage{CPU: time.Duration(pid), Memory: 10 * int64(pid)}}
	}
	for _, c := range []struct {
		pids []int
		want time.Duration
	}{{nil, 0}, {[]int{9}, 9}, {[]int{2}, 2 + 3 + 4 + 5}, {[]int{3, 2, 3}, 2 + 3 + 4 + 5}, {[]int{4, 9}, 13}} {
		if got := sumOf(found, c.pids); got != (Usage{c.want, 10 * int64(c.want)}) {
			t.Errorf("%v: got %+v, want %d", c.pids, got, c.want)
		}
	}
}

func TestProcess(t *testing.T) {
	// The shell alone: what a child has, between fork and exec, is not the same twice.
	const script = `echo '{"address":"127.0.0.1:7"}'; read line || true`
	p, err := Start(t.Context(), os.Stderr, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	if ready, err := p.Ready(); err != nil || ready.Address != "127.0.0.1:7" {
		t.Errorf("got %+v, %v", ready, err)
	}
	one, err := p.Usage()
	if err != nil || one.Memory <= 0 {
		t.Errorf("got %+v, %v", one, err)
	}
	if both, err := UsageOf(p, p)(); err != nil || both.Memory < one.Memory {
		t.Errorf("got %+v, %v", both, err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("got %v", err)
	}
	if _, err := p.Usage(); err == nil {
		t.Error("a process that has ended uses something")
	}
	early, err := Start(t.Context(), os.Stderr, "sh", "-c", "exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := early.Ready(); err == nil {
		t.Error("no error of a process that never got ready")
	}
	if err := early.Stop(); err == nil {
		t.Error("no error of a process that failed")
	}
}

// TestForeignProcess has a program that heeds neither standard input nor SIGINT.
func TestForeignProcess(t *testing.T) {
	for name, end := range map[string]func(context.CancelFunc, *Process) error{
		"stopped": func(_ context.CancelFunc, p *Process) error { return p.Stop() },
		"ended with its context": func(cancel context.CancelFunc, p *Process) error {
			cancel()
			_ = p.Stop()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			// The descriptor that it holds tells us when it is gone.
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			p, err := StartForeign(ctx, writer, "sh", "-c", "echo begun >&2; while :; do sleep 1000; done")
			if err != nil {
				t.Fatal(err)
			}
			_ = writer.Close()
			if n, err := reader.Read(make([]byte, 16)); n == 0 {
				t.Fatal(err)
			}
			if err := end(cancel, p); err != nil {
				t.Error(err)
			}
		})
	}
}
