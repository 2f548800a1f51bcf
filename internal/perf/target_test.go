// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"slices"
	"testing"
)

func TestTargets(t *testing.T) {
	us := func(name string, v float64) Figure { return Figure{Name: name, Values: map[string]float64{"us": v}} }
	c := Comparison{Sides: []string{"us", Yardstick}, Figures: []Figure{
		{Name: OneUp, Values: map[string]float64{"us": 2, Yardstick: 2.5}, Ratios: map[string]float64{Yardstick: 0.8}},
		us(ManyUp, 1.7), us(TripP99, 2), us(LoadedP99, 21), us(PerSecond, 600), us(LeastDown, 0.19),
	}}
	want := []Target{
		{Name: "1 stream up, of the relay's", Is: 0.8, Want: 0.85, Least: true},
		{Name: "many streams up, of our one", Is: 0.85, Want: 0.85, Least: true, Met: true},
		{Name: "slowest of many streams down, of fair", Is: 0.19, Want: 0.2, Least: true},
		{Name: "round trip beside a stream p99, of the idle p99", Is: 10.5, Want: 10},
		{Name: "connections a second", Is: 600, Want: 600, Least: true, Unit: "1/s", Met: true},
	}
	if got := Targets(c); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := Targets(Comparison{}); len(got) != 0 {
		t.Errorf("got %+v of nothing", got)
	}
	names := map[string]bool{}
	for _, target := range targets() {
		if names[target.Name] {
			t.Errorf("two targets are named %q", target.Name)
		}
		names[target.Name] = true
	}
}
