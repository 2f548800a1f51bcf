// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package terminator

import (
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

func TestHealth(t *testing.T) {
	start := time.Unix(1000, 0)
	check := ginnel.Check{Kind: ginnel.TCPCheck}.WithDefaults()
	for _, tc := range []struct{ results, want string }{
		{"++++", "++++"},
		{"--+--+", "++++++"},
		{"---", "++-"},
		{"-----", "++---"},
		{"---+-+-++", "++------+"},
		{"---++--+---", "++--++++++-"},
	} {
		h := NewHealth(check, start, 0.5)
		if at, ok := h.Due(); !ok || at != start.Add(5*time.Second) {
			t.Fatalf("first due at %v", at)
		}
		got, was := "", false
		for i, r := range tc.results {
			now, _ := h.Due()
			h.Began()
			if _, ok := h.Due(); ok {
				t.Fatal("due while a check runs")
			}
			jitter := float64(i%2) * 0.999
			changed := h.Ended(now, r == '+', jitter)
			if changed != (h.Unhealthy() != was) {
				t.Errorf("%s: change at %d told as %t", tc.results, i, changed)
			}
			was = h.Unhealthy()
			got += map[bool]string{true: "-", false: "+"}[was]
			next, _ := h.Due()
			if wait := next.Sub(now); wait < 9*time.Second || wait > 11*time.Second {
				t.Errorf("next after %v", wait)
			}
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.results, got, tc.want)
		}
	}
}
