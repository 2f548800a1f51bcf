// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"html"
	"io"
	"strings"
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
	chartWidth  = 880
	chartColumn = chartWidth / 2 // panels stand in two columns
	chartTop    = 56             // of the first row of panels
	chartMargin = 24
	panelHead   = 30 // of a panel, above its bars
	panelGap    = 22 // below its bars
	barHeight   = 13
	barStep     = 19
	barLeft     = 84  // of the bars, in a panel
	barMost     = 236 // the longest bar
)

// chartStyle follows the reader's choice of light or dark, the ground included.
const chartStyle = `<style>
text{font-family:"DejaVu Sans",Verdana,Helvetica,Arial,sans-serif;font-size:12px;fill:#3d4852}
.title{font-size:17px;font-weight:bold;fill:#1b2733}
.name{font-size:13px;font-weight:bold;fill:#1b2733}
.ground{fill:#fff}
.bar{fill:#9aa7b4}
.grid{stroke:#e6eaee}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round}
.first{fill:#1c6fb8}
@media (prefers-color-scheme:dark){
text{fill:#b6c2cf}
.title,.name{fill:#eef2f6}
.ground{fill:#0d1117}
.bar{fill:#56616d}
.grid{stroke:#2b333c}
.first{fill:#58a6ff}
}
</style>
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
	c := newChart(title, height)
	for i, p := range panels {
		c.panel(p, first, chartMargin+i%2*chartColumn, tops[i/2])
	}
	return c.end(w)
}

// chart is a drawing in progress.
type chart struct{ strings.Builder }

// newChart begins one of that height.
func newChart(title string, height int) *chart {
	c := new(chart)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		chartWidth, height, chartWidth, height)
	c.printf("<title>%s</title>\n%s", html.EscapeString(title), chartStyle)
	c.printf(`<rect class="ground" width="%d" height="%d"/>`+"\n", chartWidth, height)
	c.text("title", chartMargin, 34, "start", title)
	return c
}

// end completes it and writes it.
func (c *chart) end(w io.Writer) error {
	c.printf("</svg>\n")
	if _, err := io.WriteString(w, c.String()); err != nil {
		return fmt.Errorf("write chart: %w", err)
	}
	return nil
}

func (c *chart) printf(format string, args ...any) { fmt.Fprintf(&c.Builder, format, args...) }

func (c *chart) text(class string, x, y int, anchor, text string) {
	c.printf(`<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(text))
}

// panel draws one diagram with its corner at x, y.
func (c *chart) panel(p Panel, first string, x, y int) {
	c.text("name", x, y+14, "start", p.Title)
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
		c.text("side", x+barLeft-8, top+11, "end", b.Name)
		c.printf(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", class, x+barLeft, top, width, barHeight)
		c.text("value", x+barLeft+int(width)+6, top+11, "start", Number(b.Value)+" "+p.Unit)
	}
}

// Number gives a figure to three digits.
func Number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
