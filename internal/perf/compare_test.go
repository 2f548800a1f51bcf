// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
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

// TestTally has one bad round: medians and ratios do not follow it.
func TestTally(t *testing.T) {
	tl := tally{rounds: map[string][][2]float64{}}
	for i, round := range [][2]float64{{2, 4}, {3, 6}, {900, 1}} {
		tl.add(Data, i+1, 0, []value{{"x", "s", round[0]}})
		tl.add(Data, i+1, 1, []value{{"x", "s", round[1]}})
	}
	want := Figure{Section: Data, Name: "x", Unit: "s", A: 3, B: 4, Ratio: 0.5}
	if got := tl.figures(); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestCompare(t *testing.T) {
	server := run(t, Serve)
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
	relay := Side{Name: "relay", Dial: chain(t, 1), Usage: usage, Direct: to(server)}
	got, err := Compare(t.Context(), relay, Side{Name: "tcp", Dial: to(server), Usage: usage}, plan)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"relay1", "tcp1", "tcp2", "relay2"}; !slices.Equal(order, want) {
		t.Errorf("got the order %v, want %v", order, want)
	}
	if got.A != "relay" || got.B != "tcp" || got.Rounds != 2 {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{
		OneUp, CPUOne, OneDown, ManyUp, LeastUp, CPUMany, MemoryMany, ManyDown, LeastDown,
		ConnectP50, ConnectP99, PerSecond, CPUConnect, TripP50, TripP99, LoadedP50, LoadedP99,
		ConnectP50Full, ConnectP99Full, PerSecondFull, CPUConnectFull,
	} {
		if f := got.Figure(name); f.A <= 0 || f.B <= 0 || f.Ratio <= 0 || f.Unit == "" {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	if f := got.Figure(DirectP50); f.A <= 0 || f.B != 0 || f.Ratio != 0 {
		t.Errorf("got %+v of a way that one side alone has", f)
	}
	if len(got.Failures) != 0 {
		t.Errorf("got failures %+v", got.Failures)
	}
	if f := got.Figure("none"); f != (Figure{}) {
		t.Errorf("got %+v for an unknown name", f)
	}
}

// TestCompareOneSection counts handshakes: each way has its own.
func TestCompareOneSection(t *testing.T) {
	dial := to(run(t, Serve))
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
	got, err := Compare(t.Context(), a, Side{Name: "b", Dial: dial}, plan)
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Figure(Resumed); f.A != 1 || f.B != 0 {
		t.Errorf("got %+v of handshakes that all resume", f)
	}
	if f := got.Figure(ResumedFull); f.A != 0 || f.Unit == "" {
		t.Errorf("got %+v of handshakes that are all full", f)
	}
	for _, f := range got.Figures {
		if f.Section != Dialing {
			t.Errorf("got %+v of another section", f)
		}
	}
}

// TestCompareGoesOn has a network that refuses now and then.
func TestCompareGoesOn(t *testing.T) {
	dial := to(run(t, Serve))
	var n atomic.Int64
	fragile := Side{Name: "fragile", Dial: func(ctx context.Context) (net.Conn, error) {
		if n.Add(1)%7 == 0 {
			return nil, errFragile
		}
		return dial(ctx)
	}}
	plan := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 20, InFlight: 2}
	got, err := Compare(t.Context(), fragile, Side{Name: "tcp", Dial: dial}, plan)
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

func TestCompareFails(t *testing.T) {
	fails := Side{Name: "gone", Dial: func(context.Context) (net.Conn, error) { return nil, errFragile }}
	good := Plan{Rounds: 1, Duration: brief, Streams: 1, Connects: 1, InFlight: 1}
	if _, err := Compare(t.Context(), fails, fails, good); !errors.Is(err, errFragile) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v", err)
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
		if _, err := Compare(t.Context(), fails, fails, bad); err == nil || errors.Is(err, errFragile) {
			t.Errorf("%+v: got %v", bad, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	const line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 5 0 99 777 3 18446744073709551615 1 2\n"
	if got, err := parseStat(line, 4096); err != nil || got != (Usage{1750 * time.Millisecond, 3 * 4096}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1 2", strings.Replace(line, "150", "x", 1), strings.Replace(line, "25", "-", 1)} {
		if got, err := parseStat(bad, 4096); err == nil {
			t.Errorf("%q: got %+v", bad, got)
		}
	}
}

func TestProcess(t *testing.T) {
	const script = `echo '{"address":"127.0.0.1:7"}'; cat >/dev/null`
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
