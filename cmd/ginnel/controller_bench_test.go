// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ginnel/ginnel/internal/bench"
)

// The bench runs, counts what it measures, and asserts no times.
func TestControllerBench(t *testing.T) {
	var stdout, stderr strings.Builder
	args := "controller bench --services 1000 --identities 200 --policies 1000 --routers 10 --subscribers 200 --dials 50 --changes 2 --writes 20 --json"
	if status := run(strings.Fields(args), strings.NewReader(""), &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	var found bench.Controller
	if err := json.Unmarshal([]byte(stdout.String()), &found); err != nil {
		t.Fatal(err)
	}
	if d := found.Idle; d.Dials != 50 || d.P50 <= 0 || d.P99 < d.P50 || d.Max < d.P99 {
		t.Errorf("decisions %+v", d)
	}
	if c := found.Change; c.Concerned != 2 || c.Lists != 4 || c.Told <= 0 {
		t.Errorf("changes %+v", c)
	}
	if found.Start <= 0 || found.Heap == 0 || found.Burst.Writes != 20 {
		t.Errorf("got %+v", found)
	}
}
