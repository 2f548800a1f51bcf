// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

const ms = time.Millisecond

func TestChoose(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before ginnel.RouterID
		all    []candidate
		want   ginnel.RouterID
	}{
		{"the nearest", "", []candidate{{"a", 30 * ms, false}, {"b", 10 * ms, false}}, "b"},
		{"equal: the smaller id", "", []candidate{{"b", 10 * ms, false}, {"a", 10 * ms, false}}, "a"},
		{"a measured one before one without a sample", "", []candidate{{"a", 0, false}, {"b", 300 * ms, false}}, "b"},
		{"one that failed comes behind", "", []candidate{{"a", 1 * ms, true}, {"b", 300 * ms, false}}, "b"},
		{"all failed: the nearest", "", []candidate{{"a", 5 * ms, true}, {"b", 3 * ms, true}}, "b"},
		{"stays for a gain of 2 ms", "a", []candidate{{"a", 10 * ms, false}, {"b", 8 * ms, false}}, "a"},
		{"stays for a gain of a tenth", "a", []candidate{{"a", 100 * ms, false}, {"b", 90 * ms, false}}, "a"},
		{"moves for more than both", "a", []candidate{{"a", 100 * ms, false}, {"b", 89 * ms, false}}, "b"},
		{"leaves one that failed", "a", []candidate{{"a", 10 * ms, true}, {"b", 50 * ms, false}}, "b"},
		{"leaves one that is gone", "x", []candidate{{"a", 10 * ms, false}, {"b", 50 * ms, false}}, "a"},
		{"leaves one without a sample", "a", []candidate{{"a", 0, false}, {"b", 50 * ms, false}}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := choose(tt.before, tt.all, nil); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestL42_NoiseSwitchesNothing(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 42))
		noise := func() time.Duration { return time.Duration(rng.Int64N(int64(4*ms))) - 2*ms }
		var a, b path.RTT
		used, switches := ginnel.RouterID(""), 0
		for i := range 300 { // every 2 s for ten minutes
			ra, rb := a.Add(10*ms+noise()), b.Add(10*ms+noise())
			now := choose(used, []candidate{{"a", ra, false}, {"b", rb, false}}, nil)
			if i > 0 && now != used {
				switches++
			}
			used = now
		}
		if switches != 0 {
			t.Errorf("seed %d: %d switches", seed, switches)
		}
	}
}

// Spread takes each of the near-equal routers about as often, and no other.
func TestSpread(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := []candidate{
		{"a", 20 * ms, false},
		{"b", 22 * ms, false},
		{"c", 21 * ms, false},
		{"far", 25 * ms, false},
		{"failed", 20 * ms, true},
		{"unmeasured", 0, false},
	}
	const draws = 3000
	got := map[ginnel.RouterID]int{}
	for range draws {
		got[choose("", all, rng.IntN)]++
	}
	for _, id := range []ginnel.RouterID{"a", "b", "c"} {
		if n := got[id]; n < draws/3-150 || n > draws/3+150 { // 150: six standard deviations
			t.Errorf("%s was taken %d times of %d", id, n, draws)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		t.Errorf("taken beside the near-equal ones: %v", got)
	}
}

// What was chosen by chance stays through noise, and is left for the same reasons
// as a choice without spread.
func TestSpreadSticks(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 7))
		noise := func() time.Duration { return time.Duration(rng.Int64N(int64(4*ms))) - 2*ms }
		var a, b path.RTT
		used, switches := ginnel.RouterID(""), 0
		for i := range 300 {
			ra, rb := a.Add(10*ms+noise()), b.Add(10*ms+noise())
			now := choose(used, []candidate{{"a", ra, false}, {"b", rb, false}}, rng.IntN)
			if i > 0 && now != used {
				switches++
			}
			used = now
		}
		if switches != 0 {
			t.Errorf("seed %d: %d switches", seed, switches)
		}
		if got := choose(used, []candidate{{used, 40 * ms, false}, {"z", 10 * ms, false}}, rng.IntN); got != "z" {
			t.Errorf("seed %d: stays at %s, which is far now", seed, got)
		}
		if got := choose(used, []candidate{{used, 10 * ms, true}, {"z", 90 * ms, false}}, rng.IntN); got != "z" {
			t.Errorf("seed %d: stays at %s, which failed", seed, got)
		}
	}
}
