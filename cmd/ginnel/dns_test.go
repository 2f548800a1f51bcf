// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/bench"
)

func TestBenchDNS(t *testing.T) {
	found, err := bench.MeasureResolver(t.Context(), 20, 2, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Questions) != 4 {
		t.Fatalf("got %d kinds", len(found.Questions))
	}
	for _, q := range found.Questions {
		if q.PerSecond <= 0 || q.Latency.Count == 0 || (q.Ratio > 0) == (q.Kind == "bare") {
			t.Errorf("%+v", q)
		}
	}
	if text := dnsBenchText(found); strings.Count(text, "\n") != 4 || strings.Count(text, "of the bare server") != 3 {
		t.Errorf("got %s", text)
	}
}
