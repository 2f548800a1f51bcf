// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"fmt"
	"html"
	"io"
	"strings"
	"time"
)

// Where things stand in a plot of a soak, in pixels.
const (
	soakWidth  = 880
	soakLeft   = 70
	soakRight  = 850
	soakTop    = 84 // of the first diagram
	soakHeight = 130
	soakGap    = 36
)

const soakStyle = `<style>
text{font-family:"DejaVu Sans",Verdana,Helvetica,Arial,sans-serif;font-size:12px;fill:#3d4852}
.title{font-size:19px;font-weight:bold;fill:#1b2733}
.name{font-size:13px;font-weight:bold;fill:#1b2733}
.grid{stroke:#e6eaee;stroke-width:1}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round}
</style>
`

// PlotSoak writes an SVG with a diagram of each measure, a line for each process.
func PlotSoak(w io.Writer, title string, records []Record) error {
	colours := []string{"#1f7a4d", "#b5541c", "#2a5fa5", "#8a3a8f", "#a08000", "#555e66"}
	var b strings.Builder
	height := soakTop + len(measures())*(soakHeight+soakGap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n<title>%s</title>\n",
		soakWidth, height, soakWidth, height, html.EscapeString(title))
	b.WriteString(soakStyle)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n"+`<text class="title" x="24" y="32">%s</text>`+"\n", soakWidth, height, html.EscapeString(title))
	for i, r := range records {
		x := 24 + i*(soakWidth-40)/max(1, len(records))
		fmt.Fprintf(&b, `<rect x="%d" y="46" width="12" height="4" fill="%s"/><text x="%d" y="53">%s</text>`+"\n",
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
		fmt.Fprintf(&b, `<text class="name" x="24" y="%d">%s</text>`+"\n", y-8, strings.TrimSpace(m.name+" "+m.unit))
		for _, part := range []float64{0, 0.5, 1} {
			at := float64(y) + soakHeight*(1-part)
			fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%.3g</text>`+"\n",
				soakLeft, soakRight, at, at, soakLeft-6, at+4, most*part)
		}
		for j, r := range records {
			fmt.Fprintf(&b, `<polyline class="line" stroke="%s" points="`, colours[j%len(colours)])
			for _, v := range r.Course {
				x := soakLeft + (soakRight-soakLeft)*float64(v.At.Sub(r.Course[0].At))/float64(span)
				fmt.Fprintf(&b, "%.1f,%.1f ", x, float64(y)+soakHeight*(1-m.of(v)/most))
			}
			b.WriteString("\"/>\n")
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			soakLeft, y+soakHeight+16, soakRight, y+soakHeight+16, span.Round(time.Second))
	}
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
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
