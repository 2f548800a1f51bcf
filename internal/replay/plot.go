// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/ginnel/ginnel/internal/svg"
)

// Where things stand in a plot, in pixels.
const (
	plotHeight  = 720
	plotLeft    = 84  // of the panels
	plotRight   = 852 // of the panels
	plotTop     = 112 // of the first panel
	panelHeight = 150
	panelGap    = 42
	plotPoints  = 384 // of a curve, at most
)

// plotStyle is of what only these plots have.
const plotStyle = `.down{fill:#fbefed}
.mark{stroke:#66727d;stroke-width:1;stroke-dasharray:2 3}
.limit{stroke:#a3342c;stroke-width:1.2;stroke-dasharray:6 4}
.area{stroke:none;fill-opacity:.16}
@media (prefers-color-scheme:dark){
.down{fill:#33201f}
.mark{stroke:#8b98a5}
.limit{stroke:#e06a5f}
.area{fill-opacity:.3}
}
`

// panel is one of the stacked diagrams of a plot.
type panel struct {
	name, unit string
	colour     string
	values     []float64
	limit      float64 // a dashed line, if not 0
	limitName  string
	percent    bool
	stepped    bool // each value holds for the whole of its time
}

// plot is a drawing in progress.
type plot struct {
	*svg.Drawing
	c    *Course
	span time.Duration // of the time axis
	step time.Duration // of a value
}

// Plot writes the course as an SVG of three diagrams over the virtual time: the
// share of the routers that is connected, the dials started a second, and the
// dials that run at once.
func (c *Course) Plot(w io.Writer) error {
	p := &plot{c: c}
	shown := max(c.ended, c.fleet.Outage, time.Second)
	p.step = sampleEvery
	if shown > 30*time.Second {
		p.step = time.Second
	}
	if least := shown / plotPoints; least > p.step {
		p.step = least.Truncate(sampleEvery) + sampleEvery
	}
	p.span = (shown + p.step - 1).Truncate(p.step)
	p.draw()
	return p.End(w)
}

func (p *plot) draw() {
	p.Drawing = svg.New(p.title(), p.figures(), plotStyle, plotHeight)
	for i, line := range p.parameters() {
		p.Printf(`<text class="small" x="24" y="%d">%s</text>`+"\n", 55+16*i, line)
	}
	y := plotTop
	for i, panel := range p.panels() {
		p.panel(panel, y, i == 0)
		y += panelHeight + panelGap
	}
	p.timeAxis(y - panelGap)
}

func (p *plot) title() string {
	f := p.c.fleet
	return fmt.Sprintf("%s back after an outage of %s", plural(f.Routers, "router"), span(f.Outage))
}

// parameters gives the lines below the title.
func (p *plot) parameters() []string {
	f, cfg := p.c.fleet, p.c.fleet.Config
	return []string{
		fmt.Sprintf("maxWorkers %d · queueSize %s · connectTimeout %s · retry %s to %s × %g · dialSpread %g · dial time %s · never back %g %% · seed %d",
			cfg.MaxWorkers, thousands(float64(cfg.QueueSize)), span(cfg.ConnectTimeout), span(cfg.MinRetryInterval),
			span(cfg.MaxRetryInterval), cfg.RetryBackoffFactor, cfg.DialSpread, span(f.DialTime), f.FailShare*100, f.Seed),
		p.figures(),
	}
}

func (p *plot) figures() string {
	c := p.c
	out := fmt.Sprintf("%s, at most %s in one second · %s times pool full",
		plural(int(c.Dials), "dial"), thousands(float64(c.MaxDialsPerSecond)), thousands(float64(c.PoolFull)))
	if c.T50 != nil && c.T99 != nil && c.T100 != nil {
		out += fmt.Sprintf(" · from the return of the network: t50 %s, t99 %s, t100 %s",
			span(time.Duration(*c.T50)), span(time.Duration(*c.T99)), span(time.Duration(*c.T100)))
	}
	return out
}

// panels takes the samples together to what is drawn.
func (p *plot) panels() []panel {
	n := int(p.span / p.step)
	share, rate, most := make([]float64, n), make([]float64, n), make([]float64, n)
	per := int(p.step / sampleEvery)
	last := sample{}
	for i := range n {
		running := 0.0
		for j := i * per; j < (i+1)*per; j++ {
			if j < len(p.c.samples) {
				last = p.c.samples[j]
				rate[i] += float64(last.dials) / p.step.Seconds()
			} else {
				last.most = last.last
			}
			running = max(running, float64(last.most))
		}
		share[i] = 100 * float64(last.connected) / float64(p.c.fleet.Routers)
		most[i] = running
	}
	return []panel{
		{name: "connected", unit: "share of all routers", colour: "#1f7a4d", values: share, percent: true},
		{name: "dials a second", unit: "started, mean of " + span(p.step), colour: "#1c5fa8", values: rate, stepped: true},
		{
			name: "concurrent dials", unit: "most within " + span(p.step), colour: "#7a4aa0", values: most, stepped: true,
			limit: float64(p.c.fleet.Config.MaxWorkers), limitName: "maxWorkers",
		},
	}
}

// panel draws one diagram with its top at y.
func (p *plot) panel(d panel, y int, first bool) {
	top, ticks := 100.0, []float64{0, 25, 50, 75, 100}
	if !d.percent {
		most := d.limit
		for _, v := range d.values {
			most = max(most, v)
		}
		top, ticks = axis(most)
	}
	bottom := y + panelHeight
	height := func(v float64) float64 { return float64(bottom) - v/top*panelHeight }
	down := p.x(min(p.c.fleet.Outage, p.span)) - plotLeft
	if down > 0 {
		p.Printf(`<rect class="down" x="%d" y="%d" width="%.1f" height="%d"/>`+"\n", plotLeft, y, down, panelHeight)
	}
	for _, v := range ticks {
		label := thousands(v)
		if d.percent {
			label += " %"
		}
		p.Printf(`<path class="grid" d="M%d %.1fH%d"/><text class="small" x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, height(v), plotRight, plotLeft-8, height(v)+4, label)
	}
	for _, t := range timeTicks(p.span) {
		p.Printf(`<path class="grid" d="M%.1f %dV%d"/>`+"\n", p.x(t), y, bottom)
	}
	p.legend(d, y-10, first && down > 0)
	p.curve(d, height)
	if d.limit > 0 {
		p.Printf(`<path class="limit" d="M%d %.1fH%d"/>`+"\n", plotLeft, height(d.limit), plotRight)
	}
	if first {
		p.marks(y)
	}
	p.Printf(`<path class="axis" d="M%d %dV%dH%d"/>`+"\n", plotLeft, y, bottom, plotRight)
}

// legend names what is drawn, above the diagram.
func (p *plot) legend(d panel, y int, down bool) {
	p.Printf(`<rect x="%d" y="%d" width="18" height="4" fill="%s"/>`, plotLeft, y-6, d.colour)
	p.Printf(`<text x="%d" y="%d"><tspan class="name">%s</tspan><tspan class="small" dx="8">%s</tspan></text>`+"\n",
		plotLeft+25, y, d.name, d.unit)
	if d.limit > 0 {
		name := d.limitName + " " + thousands(d.limit)
		x := plotRight - 7*len(name) - 32
		p.Printf(`<path class="limit" d="M%d %dh24"/><text class="small" x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			x, y-4, plotRight, y, name)
	}
	if down {
		p.Printf(`<rect class="down" x="%d" y="%d" width="24" height="11"/><text class="small" x="%d" y="%d" text-anchor="end">network down</text>`+"\n",
			plotRight-112, y-10, plotRight, y)
	}
}

// curve draws the values as a line over a light area.
func (p *plot) curve(d panel, height func(float64) float64) {
	var path strings.Builder
	for i, v := range d.values {
		y := height(v)
		switch {
		case d.stepped:
			fmt.Fprintf(&path, "%.1fV%.1fH", p.x(time.Duration(i)*p.step), y)
		case i == 0: // before the first value was measured
			fmt.Fprintf(&path, "%.1f %.1fL%.1f %.1f ", p.x(0), height(0), p.x(p.step), y)
		default:
			fmt.Fprintf(&path, "%.1f %.1f ", p.x(time.Duration(i+1)*p.step), y)
		}
	}
	if d.stepped {
		fmt.Fprintf(&path, "%.1f", p.x(p.span))
	}
	line := strings.TrimSpace(path.String())
	if d.stepped { // begins with an x of the axis
		_, rest, _ := strings.Cut(line, "V")
		line = fmt.Sprintf("%d %.1fV%s", plotLeft, height(0), rest)
	}
	p.Printf(`<path class="area" fill="%s" d="M%sV%.1fH%dZ"/>`+"\n", d.colour, line, height(0), plotLeft)
	p.Printf(`<path class="line" stroke="%s" d="M%s"/>`+"\n", d.colour, line)
}

// marks shows when the shares of the figures were reached.
func (p *plot) marks(y int) {
	free := math.Inf(1)
	for i := len(shares) - 1; i >= 0; i-- {
		since := [...]*text{p.c.T50, p.c.T99, p.c.T100}[i]
		if since == nil {
			continue
		}
		x := p.x(p.c.fleet.Outage + time.Duration(*since))
		p.Printf(`<path class="mark" d="M%.1f %dV%d"/>`, x, y, y+panelHeight)
		label := fmt.Sprintf("t%d", shares[i])
		if x+4 < free-24 || math.IsInf(free, 1) {
			p.Printf(`<text class="small" x="%.1f" y="%d" text-anchor="end">%s</text>`, x-4, y+panelHeight-7, label)
			free = x - 4
		}
		p.WriteString("\n")
	}
}

// timeAxis labels the ticks below the last diagram.
func (p *plot) timeAxis(y int) {
	for _, t := range timeTicks(p.span) {
		p.Printf(`<path class="axis" d="M%.1f %dv5"/><text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			p.x(t), y, p.x(t), y+19, span(t))
	}
	p.Printf(`<text x="%d" y="%d" text-anchor="middle">time since all connections were lost</text>`+"\n",
		(plotLeft+plotRight)/2, y+40)
}

func (p *plot) x(t time.Duration) float64 {
	return plotLeft + (plotRight-plotLeft)*t.Seconds()/p.span.Seconds()
}
