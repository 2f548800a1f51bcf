// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// The bench runs, counts what it measures, and asserts no times.
func TestDialerBench(t *testing.T) {
	var stdout, stderr strings.Builder
	args := "dialer bench --duration 200ms --routers 500 --rate 1000 --peers 5 --json"
	if status := run(strings.Fields(args), strings.NewReader(""), &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s%s", status, stdout.String(), stderr.String())
	}
	var found dialerBench
	if err := json.Unmarshal([]byte(stdout.String()), &found); err != nil {
		t.Fatal(err)
	}
	if len(found.Starts) != 2 || found.Starts[1].Routers != 500 || found.Starts[1].Dials == 0 || found.Starts[1].P50 <= 0 {
		t.Errorf("got %+v", found.Starts)
	}
	if found.Idle == nil || found.Idle.Peers != 5 || found.Idle.Heap == 0 {
		t.Errorf("got %+v", found.Idle)
	}
}
