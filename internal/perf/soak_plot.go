// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"html"
	"io"
	"strings"
	"time"
)

// Where things stand in a plot of a soak, in pixels.
const (
	soakLeft   = 70
	soakRight  = 850
	soakTop    = 84 // of the first diagram
	soakHeight = 130
	soakGap    = 36
)

// PlotSoak writes an SVG with a diagram of each measure, a line for each process.
func PlotSoak(w io.Writer, title string, records []Record) error {
	colours := []string{"#1f7a4d", "#b5541c", "#2a5fa5", "#8a3a8f", "#a08000", "#555e66"}
	c := newChart(title, soakTop+len(measures())*(soakHeight+soakGap))
	for i, r := range records {
		x := chartMargin + i*(chartWidth-40)/max(1, len(records))
		c.printf(`<rect x="%d" y="46" width="12" height="4" fill="%s"/><text x="%d" y="53">%s</text>`+"\n",
			x, colours[i%len(colours)], x+18, html.EscapeString(r.Process))
	}
	span := span(records)
	for i, m := range measures() {
		y := soakTop + i*(soakHeight+soakGap)
		most := 1.0
		for _, r := range records {
			for _, v := range r.Course {
				most = max(most, m.of(v))
			}
		}
		c.text("name", chartMargin, y-8, "start", strings.TrimSpace(m.name+" "+m.unit))
		for _, part := range []float64{0, 0.5, 1} {
			at := float64(y) + soakHeight*(1-part)
			c.printf(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n",
				soakLeft, soakRight, at, at, soakLeft-6, at+4, most*part)
		}
		for j, r := range records {
			c.printf(`<polyline class="line" stroke="%s" points="`, colours[j%len(colours)])
			for _, v := range r.Course {
				x := soakLeft + (soakRight-soakLeft)*float64(v.At.Sub(r.Course[0].At))/float64(span)
				c.printf("%.1f,%.1f ", x, float64(y)+soakHeight*(1-m.of(v)/most))
			}
			c.printf("\"/>\n")
		}
		c.printf(`<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			soakLeft, y+soakHeight+16, soakRight, y+soakHeight+16, span.Round(time.Second))
	}
	return c.end(w)
}

// span gives the time of the longest course.
func span(records []Record) time.Duration {
	longest := time.Second
	for _, r := range records {
		if n := len(r.Course); n > 0 {
			longest = max(longest, r.Course[n-1].At.Sub(r.Course[0].At))
		}
	}
	return longest
}
