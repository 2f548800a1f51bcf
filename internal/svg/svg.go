// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package svg is what the diagrams of the tools have in common: the frame of an SVG,
// its ground and title, a style that follows the reader's choice of light or dark, and
// how text is written. What is drawn in it is the caller's.
package svg

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Where things stand in every drawing, in pixels.
const (
	Width  = 880
	Margin = 24 // of the title, from the left
)

// style is of all drawings: texts with their classes, the ground, grids and lines.
const style = `text{font-family:"DejaVu Sans",Verdana,Helvetica,Arial,sans-serif;font-size:12px;fill:#3d4852}
.title{font-size:17px;font-weight:bold;fill:#1b2733}
.small{font-size:11px;fill:#66727d}
.name{font-size:13px;font-weight:bold;fill:#1b2733}
.ground{fill:#fff}
.grid{fill:none;stroke:#e6eaee}
.axis{fill:none;stroke:#8b96a1}
.line{fill:none;stroke-width:1.6;stroke-linejoin:round}
@media (prefers-color-scheme:dark){
text{fill:#b6c2cf}
.small{fill:#8b98a5}
.title,.name{fill:#eef2f6}
.ground{fill:#0d1117}
.grid{stroke:#2b333c}
.axis{stroke:#56616d}
}
`

// Drawing is an SVG in progress.
type Drawing struct{ strings.Builder }

// New begins one of that height. What desc says is for those who cannot see it; more is
// style beside that of all drawings. Both may be empty.
func New(title, desc, more string, height int) *Drawing {
	d := new(Drawing)
	d.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		Width, height, Width, height)
	d.Printf("<title>%s</title>\n", html.EscapeString(title))
	if desc != "" {
		d.Printf("<desc>%s</desc>\n", html.EscapeString(desc))
	}
	d.Printf("<style>\n%s%s</style>\n", style, more)
	d.Printf(`<rect class="ground" width="%d" height="%d"/>`+"\n", Width, height)
	d.Text("title", Margin, 34, "start", title)
	return d
}

// Printf adds to it, as it is.
func (d *Drawing) Printf(format string, args ...any) { fmt.Fprintf(&d.Builder, format, args...) }

// Text adds a text of a class, whose start, middle or end is at x.
func (d *Drawing) Text(class string, x, y int, anchor, text string) {
	d.Printf(`<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor, html.EscapeString(text))
}

// End completes it and writes it.
func (d *Drawing) End(w io.Writer) error {
	d.Printf("</svg>\n")
	if _, err := io.WriteString(w, d.String()); err != nil {
		return fmt.Errorf("write a drawing: %w", err)
	}
	return nil
}
