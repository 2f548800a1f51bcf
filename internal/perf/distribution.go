// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"math"
	"slices"
	"time"
)

// Distribution sums up durations, in milliseconds.
type Distribution struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// distribution sorts samples. Each percentile is one of them: the smallest that
// so many percent do not exceed.
func distribution(samples []time.Duration) Distribution {
	if len(samples) == 0 {
		return Distribution{}
	}
	slices.Sort(samples)
	at := func(percent float64) float64 {
		rank := int(math.Ceil(percent / 100 * float64(len(samples))))
		return milliseconds(samples[max(rank, 1)-1])
	}
	return Distribution{Count: len(samples), P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median gives the middle of values, or the mean of the two middle ones; of
// none 0. It sorts them.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
