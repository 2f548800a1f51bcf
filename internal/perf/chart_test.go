// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// drawn is what a reader of an SVG sees of it.
type drawn struct {
	bars  []float64 // widths, in the order of the panels
	first int       // bars of the first side
	texts []string
}

// read fails the test if text is no well-formed XML, or a shape lies outside.
func read(t *testing.T, text string) drawn {
	t.Helper()
	var d drawn
	var width, height float64
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			number := func(name string) float64 {
				v, _ := strconv.ParseFloat(attribute(token, name), 64)
				return v
			}
			if token.Name.Local == "svg" {
				width, height = number("width"), number("height")
			}
			if number("x")+number("width") > width || number("y")+number("height") > height || number("width") < 0 {
				t.Errorf("%+v is outside of %gx%g", token, width, height)
			}
			if class := attribute(token, "class"); strings.HasPrefix(class, "bar") {
				d.bars = append(d.bars, number("width"))
				if class == "bar first" {
					d.first++
				}
			}
		case xml.CharData:
			if s := strings.TrimSpace(string(token)); s != "" {
				d.texts = append(d.texts, s)
			}
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	i := slices.IndexFunc(e.Attr, func(a xml.Attr) bool { return a.Name.Local == name })
	if i < 0 {
		return ""
	}
	return e.Attr[i].Value
}

func TestChart(t *testing.T) {
	var out strings.Builder
	err := WriteChart(&out, `A & "B" <c>`, "us", []Panel{
		{"speed", "Gbit/s", []Bar{{"us", 3}, {"<them>", 12}, {"none", 0}}},
		{"time", "ms", []Bar{{"us", 150}}},
		{"nothing", "s", []Bar{{"us", 0}, {"odd", -1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := read(t, out.String())
	want := []float64{barMost / 4, barMost, 0, barMost, 0, 0}
	if !slices.EqualFunc(got.bars, want, func(a, b float64) bool { return math.Abs(a-b) < 0.1 }) || got.first != 3 {
		t.Errorf("got bars %v, %d of the first side; want %v", got.bars, got.first, want)
	}
	for _, text := range []string{`A & "B" <c>`, "<them>", "3 Gbit/s", "12 Gbit/s", "150 ms", "nothing"} {
		if !slices.Contains(got.texts, text) {
			t.Errorf("there is no %q in %q", text, got.texts)
		}
	}
	if !strings.Contains(out.String(), "prefers-color-scheme:dark") {
		t.Error("it has no dark side")
	}
}

func TestChartFails(t *testing.T) {
	if err := WriteChart(io.Discard, "x", "us", nil); err == nil {
		t.Error("no error of a chart of nothing")
	}
	reader, writer := io.Pipe()
	_ = reader.CloseWithError(errFragile)
	if err := WriteChart(writer, "x", "us", []Panel{{"speed", "x", []Bar{{"us", 1}}}}); !errors.Is(err, errFragile) {
		t.Errorf("got %v", err)
	}
}
