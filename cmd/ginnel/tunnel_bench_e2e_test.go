// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package main

import "testing"

// The bench of intercepting measures all that it shows, in a namespace of its own.
func TestTunnelBench(t *testing.T) {
	p := newPlace(t)
	// A process of its own: it starts others of itself.
	found := p.lines(p.run("tunnel", "bench", "--rounds", "1", "--connects", "3", "--duration", "100ms", "--json"))
	if len(found) != 3 {
		t.Fatalf("got %v", found)
	}
	for _, f := range found {
		if f["intercepted"].(float64) <= 0 || f["beside"].(float64) <= 0 || f["name"] == "" {
			t.Errorf("%v", f)
		}
	}
}
