// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"html"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ginnel/ginnel/internal/svg"
)

// Where things stand in a plot of a soak, in pixels.
const (
	soakLeft   = 70
	soakRight  = 850
	soakTop    = 84 // of the first diagram
	soakHeight = 130
	soakGap    = 36
	soakPoints = 120 // of a line, at most
)

// PlotSoak writes an SVG with a diagram of each measure, a line for each process.
func PlotSoak(w io.Writer, title string, records []Record) error {
	colours := []string{"#1f7a4d", "#b5541c", "#2a5fa5", "#8a3a8f", "#a08000", "#555e66"}
	d := svg.New(title, "", "", soakTop+len(measures())*(soakHeight+soakGap))
	for i, r := range records {
		x := svg.Margin + i*(svg.Width-40)/max(1, len(records))
		d.Printf(`<rect x="%d" y="46" width="12" height="4" fill="%s"/><text x="%d" y="53">%s</text>`+"\n",
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
		d.Text("name", svg.Margin, y-8, "start", strings.TrimSpace(m.name+" "+m.unit))
		for _, part := range []float64{0, 0.5, 1} {
			at := float64(y) + soakHeight*(1-part)
			d.Printf(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n",
				soakLeft, soakRight, at, at, soakLeft-6, at+4, most*part)
		}
		for j, r := range records {
			d.Printf(`<polyline class="line" stroke="%s" points="`, colours[j%len(colours)])
			for _, v := range thin(r.Course, soakPoints) {
				x := soakLeft + (soakRight-soakLeft)*float64(v.At.Sub(r.Course[0].At))/float64(span)
				d.Printf("%.1f,%.1f ", x, float64(y)+soakHeight*(1-m.of(v)/most))
			}
			d.Printf("\"/>\n")
		}
		d.Printf(`<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			soakLeft, y+soakHeight+16, soakRight, y+soakHeight+16, span.Round(time.Second))
	}
	return d.End(w)
}

// thin gives means of equally many samples in a row, at most so many in all.
func thin(course []Vitals, most int) []Vitals {
	each := (len(course) + most - 1) / most
	if each <= 1 {
		return course
	}
	var out []Vitals
	for part := range slices.Chunk(course, each) {
		n := int64(len(part))
		v := Vitals{At: part[len(part)/2].At}
		for _, p := range part {
			v.Heap += p.Heap
			v.Resident += p.Resident
			v.Goroutines += p.Goroutines
			v.Descriptors += p.Descriptors
		}
		v.Heap, v.Resident = v.Heap/n, v.Resident/n
		v.Goroutines, v.Descriptors = v.Goroutines/len(part), v.Descriptors/len(part)
		out = append(out, v)
	}
	return out
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
