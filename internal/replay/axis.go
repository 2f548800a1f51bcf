// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// axis gives the end of an axis on which most has room, and its ticks, both
// round numbers.
func axis(most float64) (top float64, ticks []float64) {
	if most <= 0 {
		most = 1
	}
	raw := most * 1.06 / 4
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*unit >= raw {
			step = m * unit
			break
		}
	}
	top = math.Ceil(most*1.06/step) * step
	for i := 0; float64(i)*step <= top; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return top, ticks
}

// timeTicks gives up to ten round instants from 0 to span.
func timeTicks(span time.Duration) []time.Duration {
	step := 24 * time.Hour
	for _, s := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour,
	} {
		if span/s <= 10 {
			step = s
			break
		}
	}
	var ticks []time.Duration
	for t := time.Duration(0); t <= span; t += step {
		ticks = append(ticks, t)
	}
	return ticks
}

// span writes a duration as people do: 1m for 1m0s, at most three digits of a
// second's parts.
func span(d time.Duration) string {
	if d >= time.Second {
		d = d.Round(time.Millisecond)
	}
	if d >= 10*time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// thousands writes a number with commas between groups of three digits.
func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	whole, part, _ := strings.Cut(s, ".")
	if part != "" {
		part = "." + part
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole + part
}

// plural writes "1 router" or "2 routers".
func plural(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(float64(n)) + " " + thing
}
