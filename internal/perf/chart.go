// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"io"

	"github.com/ginnel/ginnel/internal/svg"
)

// Panel is one diagram of a chart: a bar for each side that was measured.
type Panel struct {
	Title string // with what is better: "connections a second, more is better"
	Unit  string
	Bars  []Bar
}

// Bar is one side's value.
type Bar struct {
	Name  string
	Value float64
}

// Where things stand in a chart, in pixels.
const (
	chartColumn = svg.Width / 2 // panels stand in two columns
	chartTop    = 56            // of the first row of panels
	panelHead   = 30            // of a panel, above its bars
	panelGap    = 22            // below its bars
	barHeight   = 13
	barStep     = 19
	barLeft     = 84  // of the bars, in a panel
	barMost     = 236 // the longest bar
)

// chartStyle is of the bars.
const chartStyle = `.bar{fill:#9aa7b4}
.first{fill:#1c6fb8}
@media (prefers-color-scheme:dark){
.bar{fill:#56616d}
.first{fill:#58a6ff}
}
`

// WriteChart writes panels as an SVG. The bars of a panel are in proportion to its
// greatest value, those of the side named first have a colour of their own.
func WriteChart(w io.Writer, title, first string, panels []Panel) error {
	if len(panels) == 0 {
		return errors.New("a chart of nothing")
	}
	rows := (len(panels) + 1) / 2
	height := chartTop
	var tops []int
	for row := range rows {
		tops = append(tops, height)
		bars := 0
		for _, p := range panels[2*row : min(2*row+2, len(panels))] {
			bars = max(bars, len(p.Bars))
		}
		height += panelHead + bars*barStep + panelGap
	}
	d := svg.New(title, "", chartStyle, height)
	for i, p := range panels {
		draw(d, p, first, svg.Margin+i%2*chartColumn, tops[i/2])
	}
	return d.End(w)
}

// draw draws one diagram with its corner at x, y.
func draw(d *svg.Drawing, p Panel, first string, x, y int) {
	d.Text("name", x, y+14, "start", p.Title)
	most := 0.0
	for _, b := range p.Bars {
		most = max(most, b.Value)
	}
	for i, b := range p.Bars {
		top, width, class := y+panelHead+i*barStep, 0.0, "bar"
		if most > 0 {
			width = max(b.Value, 0) / most * barMost
		}
		if b.Name == first {
			class = "bar first"
		}
		d.Text("side", x+barLeft-8, top+11, "end", b.Name)
		d.Printf(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, x+barLeft, top, width, barHeight)
		d.Text("value", x+barLeft+int(width)+6, top+11, "start", Number(b.Value)+" "+p.Unit)
	}
}

// Number gives a figure to three digits.
func Number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
