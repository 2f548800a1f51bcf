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
			if got := choose(tt.before, tt.all); got != tt.want {
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
			now := choose(used, []candidate{{"a", ra, false}, {"b", rb, false}})
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
