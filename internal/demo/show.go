// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

const picture = `
             r2
           /    \
  alice - r1     r4 - bob - a file server on his loopback
           \    /
             r3        nobody but the routers listens
`

// Text shows events to people. With Live, progress is drawn over itself, as
// terminals can.
type Text struct {
	W    io.Writer
	Live bool

	bar bool // a progress bar stands on the last line
}

// Event writes one event.
func (t *Text) Event(e Event) error {
	var b strings.Builder
	if t.bar {
		b.WriteString("\r\x1b[K")
		t.bar = false
	}
	switch e.Event {
	case "network":
		fmt.Fprintf(&b, "A network on loopback, up in %s: %s\n%s\n", round(time.Duration(e.Took)), e.Detail, picture)
		fmt.Fprintf(&b, "The nine steps by which a program reaches %s\n", hostname)
	case "step":
		fmt.Fprintf(&b, "  %d  %-13s %9s  %s\n", e.Step, e.Name, took(time.Duration(e.Took)), e.Detail)
	case "progress":
		if !t.Live {
			return nil
		}
		fmt.Fprintf(&b, "%s %3.0f %%  %s", bar(e.Bytes, e.Total), 100*float64(e.Bytes)/float64(e.Total), speed(e.Rate))
		t.bar = true
	case "kill":
		fmt.Fprintf(&b, "\nA download by name, over %s: router %s %s\n", strings.Join(e.Path, " - "), e.Name, e.Detail)
	case "reroute":
		fmt.Fprintf(&b, "Re-routed %s after the kill: %s\n", round(time.Duration(e.Took)), e.Detail)
	case "done":
		fmt.Fprintf(&b, "%d MiB in %s, %s; %s\n", e.Bytes>>20, round(time.Duration(e.Took)), speed(e.Rate), e.Detail)
	case "ready":
		fmt.Fprintf(&b, "\nThe network stays up until Ctrl-C. In another shell:\n  %s\n", strings.ReplaceAll(e.Detail, "\n", "\n  "))
	}
	_, err := io.WriteString(t.W, b.String())
	return err
}

// JSON shows events to programs, one object a line.
type JSON struct{ W io.Writer }

// Event writes one event.
func (j JSON) Event(e Event) error { return json.NewEncoder(j.W).Encode(e) }

func bar(n, total int64) string {
	const width = 40
	full := int(width * n / max(total, 1))
	return strings.Repeat("#", full) + strings.Repeat(".", width-full)
}

func speed(rate float64) string { return fmt.Sprintf("%.0f MB/s", rate/1e6) }

func took(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return round(d)
}

// round gives three digits, about.
func round(d time.Duration) string {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
