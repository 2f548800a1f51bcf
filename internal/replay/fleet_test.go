// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

func runFleet(t *testing.T, f Fleet) *Course {
	t.Helper()
	if err := f.Validate(); err != nil {
		t.Fatal(err)
	}
	c, err := f.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFleetFigures: what is printed agrees with itself and with the samples.
func TestFleetFigures(t *testing.T) {
	c := runFleet(t, NewFleet(20_000))
	var dials, last uint64
	most := uint32(0)
	for _, s := range c.samples {
		dials += uint64(s.dials)
		most = max(most, s.most)
		last = uint64(s.connected)
	}
	if c.Dials != dials || last != 20_000 || c.MaxConcurrent != int(most) || most != 64 {
		t.Errorf("samples have %d dials, %d at once, %d connected in the end; figures %+v", dials, most, last, c.Figures)
	}
	// A worker makes 20 dials of 50 ms a second.
	if c.MaxDialsPerSecond > 64*20 || c.PoolFull == 0 {
		t.Errorf("got %+v", c.Figures)
	}
	if c.BytesPerRouter < 100 || c.BytesPerRouter >= 250 {
		t.Errorf("%g bytes a router", c.BytesPerRouter)
	}
	if *c.T50 <= 0 || *c.T50 >= *c.T99 || *c.T99 > *c.T100 {
		t.Errorf("t50 %s, t99 %s, t100 %s", c.T50, c.T99, c.T100)
	}
	var keys map[string]any
	text, err := json.Marshal(c.Figures)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"routers", "dials", "maxConcurrent", "maxDialsPerSecond", "poolFull", "t50", "t99", "t100",
		"bytesPerRouter", "stepsPerSecond", "wall",
	} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no %s in %s", key, text)
		}
	}
	if at, err := time.ParseDuration(fmt.Sprint(keys["t99"])); err != nil || at != time.Duration(*c.T99) {
		t.Errorf("t99 is %v: %v", keys["t99"], err)
	}
}

func TestFleetSeeds(t *testing.T) {
	run := func(seed uint64) Figures {
		f := NewFleet(3000)
		f.Seed, f.FailShare = seed, 0.1
		c := runFleet(t, f).Figures
		return Figures{Dials: c.Dials, PoolFull: c.PoolFull, MaxDialsPerSecond: c.MaxDialsPerSecond, T50: c.T50, T99: c.T99}
	}
	same := func(a, b Figures) bool {
		return a.Dials == b.Dials && a.PoolFull == b.PoolFull && *a.T50 == *b.T50 && *a.T99 == *b.T99
	}
	if a, b := run(1), run(1); !same(a, b) {
		t.Errorf("one seed gives %+v and %+v", a, b)
	}
	if a, b := run(1), run(2); same(a, b) {
		t.Errorf("two seeds give %+v", a)
	}
}

// TestFleetOutage: with room for all, who was being dialed when the network came
// back waits for the end of that dial and for one more.
func TestFleetOutage(t *testing.T) {
	f := NewFleet(10)
	f.Outage = 4 * time.Second
	c := runFleet(t, f)
	// All dials from 0 to 5 s; then 1 s, and the dial.
	if want := text(2*time.Second + f.DialTime); c.Dials != 20 || *c.T50 != want || *c.T100 != want {
		t.Errorf("%d dials, t50 %s, t100 %s", c.Dials, c.T50, c.T100)
	}
	f.Outage = 0
	if c := runFleet(t, f); c.Dials != 10 || *c.T100 != text(f.DialTime) {
		t.Errorf("without an outage %d dials, t100 %s", c.Dials, c.T100)
	}
	f.DialTime = time.Minute
	if c := runFleet(t, f); c.T50 != nil || c.ended != Longest || c.T50.String() != "never" {
		t.Errorf("dials that take too long: t50 %s, ended at %s", c.T50, c.ended)
	}
}

func TestFleetFailShare(t *testing.T) {
	f := NewFleet(1000)
	f.FailShare = 0.25
	c := runFleet(t, f)
	if last := c.samples[len(c.samples)-1].connected; last != 750 {
		t.Errorf("%d are connected in the end, want 750", last)
	}
	f.FailShare = 1
	if c := runFleet(t, f); c.T100 != nil || c.Dials != 0 {
		t.Errorf("nobody can come back: %+v", c.Figures)
	}
}

func TestFleetValidate(t *testing.T) {
	f := Fleet{Outage: -1, DialTime: -1, FailShare: 2, Config: dialer.Defaults()}
	f.Config.MaxWorkers = 0
	const want = "routers: 0 is not from 1 to 20000000\n" +
		"outage: -1ns is not from 0s to less than 24h0m0s\ndial-time: -1ns is negative\n" +
		"fail-share: 2 is not a share from 0 to 1\nmaxWorkers: 0 is less than 1"
	if err := f.Validate(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestFleetCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := NewFleet(5000)
	f.DialTime = time.Minute // never done
	f.Progress = func(time.Duration, int) { cancel() }
	if _, err := f.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPlot(t *testing.T) {
	for _, f := range []Fleet{NewFleet(1), NewFleet(5000), {
		Routers: 100, FailShare: 1, Config: dialer.Defaults(),
	}, {
		Routers: 7, DialTime: time.Hour, Config: dialer.Defaults(), // a day
	}} {
		var out bytes.Buffer
		if err := runFleet(t, f).Plot(&out); err != nil {
			t.Fatal(err)
		}
		if out.Len() > 60_000 {
			t.Errorf("%d routers: %d bytes", f.Routers, out.Len())
		}
		for _, want := range []string{plural(f.Routers, "router"), "maxWorkers 64", "dials a second", "NaN"} {
			if strings.Contains(out.String(), want) != (want != "NaN") {
				t.Errorf("%d routers: %q in the plot?", f.Routers, want)
			}
		}
		for d := xml.NewDecoder(&out); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%d routers: %v", f.Routers, err)
			}
		}
	}
	if err := runFleet(t, NewFleet(3)).Plot(failing{}); !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
}

func TestAxis(t *testing.T) {
	for _, most := range []float64{0, 0.3, 1, 64, 1280, 999_999} {
		top, ticks := axis(most)
		if top < most || len(ticks) < 3 || len(ticks) > 7 || ticks[len(ticks)-1] != top {
			t.Errorf("%g: top %g, ticks %v", most, top, ticks)
		}
	}
	for _, length := range []time.Duration{time.Second, 83 * time.Second, 17 * time.Minute, Longest} {
		if ticks := timeTicks(length); len(ticks) < 4 || len(ticks) > 11 {
			t.Errorf("%s: %v", length, ticks)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 50 * time.Millisecond: "50ms", 0: "0s",
		87*time.Second + 123456*time.Microsecond: "1m27.1s", 90 * time.Minute: "1h30m",
	} {
		if got := span(d); got != want {
			t.Errorf("%s is written %s, want %s", d, got, want)
		}
	}
	if got := thousands(13474365); got != "13,474,365" {
		t.Error(got)
	}
}

// BenchmarkFleet brings fleets back after an outage of a minute.
func BenchmarkFleet(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var c *Course
			var err error
			for b.Loop() {
				if c, err = NewFleet(n).Run(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(c.StepsPerSecond, "steps/s")
			b.ReportMetric(c.BytesPerRouter, "B/router")
		})
	}
}
