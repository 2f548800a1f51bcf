// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"testing"
)

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
