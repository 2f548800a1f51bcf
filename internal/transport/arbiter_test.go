// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// A line is an event; what follows are the actions and the state.
func TestArbiterTranscript(t *testing.T) {
	datadriven.RunTest(t, "testdata/arbiter.txt", func(t *testing.T, d *datadriven.TestData) string {
		var a arbiter
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			var what string
			var n uint64
			if _, err := fmt.Sscan(line, &what, &n); err != nil {
				d.Fatalf(t, "%q: %v", line, err)
			}
			var actions []action
			switch what {
			case "arrive":
				actions = a.arrive(n)
			case "alive":
				actions = a.alive(n)
			case "silent":
				actions = a.silent(n)
			case "gone":
				actions = a.gone(n)
			default:
				d.Fatalf(t, "unknown event %q", what)
			}
			fmt.Fprintf(&out, "%s %d ->", what, n)
			for _, act := range actions {
				switch act := act.(type) {
				case accept:
					fmt.Fprintf(&out, " accept %d;", act.number)
				case duplicate:
					fmt.Fprintf(&out, " duplicate %d of %d;", act.number, act.survivor)
				case askHolder:
					fmt.Fprintf(&out, " ask %d;", act.number)
				case drop:
					fmt.Fprintf(&out, " drop %d;", act.number)
				}
			}
			fmt.Fprintf(&out, " holder %d, waiting %v\n", a.holder, a.waiting)
		}
		return out.String()
	})
}

// Whatever happens in whatever order: every arrival gets one answer or goes, at
// most one connection is accepted and neither dropped nor gone, and that one is the holder.
func TestArbiterProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a arbiter
		last := uint64(0)
		accepted := map[uint64]bool{}
		open := map[uint64]bool{} // arrived and not answered
		asked := uint64(0)
		apply := func(actions []action) {
			for _, act := range actions {
				switch act := act.(type) {
				case accept:
					if !open[act.number] {
						t.Fatalf("accept of %d, which does not wait", act.number)
					}
					delete(open, act.number)
					accepted[act.number] = true
				case duplicate:
					if !open[act.number] || !accepted[act.survivor] {
						t.Fatalf("%d is a duplicate of %d", act.number, act.survivor)
					}
					delete(open, act.number)
				case askHolder:
					if asked != 0 {
						t.Fatalf("asked %d while %d is", act.number, asked)
					}
					asked = act.number
				case drop:
					delete(accepted, act.number)
				}
			}
		}
		for range 60 {
			n := rapid.Uint64Range(1, last+1).Draw(t, "n")
			switch rapid.SampledFrom([]string{"arrive", "alive", "silent", "gone"}).Draw(t, "event") {
			case "arrive":
				last++
				open[last] = true
				apply(a.arrive(last))
			case "alive":
				if asked == n {
					asked = 0
				}
				apply(a.alive(n))
			case "silent":
				if asked == n {
					asked = 0
				}
				apply(a.silent(n))
			case "gone":
				if asked == n {
					asked = 0 // the ping ends with the connection
				}
				delete(open, n)
				delete(accepted, n)
				apply(a.gone(n))
			}
			if len(accepted) > 1 || len(accepted) == 1 != (a.holder != 0) || a.holder != 0 && !accepted[a.holder] {
				t.Fatalf("accepted %v, holder %d", accepted, a.holder)
			}
			for n := range open {
				if !slices.Contains(a.waiting, n) {
					t.Fatalf("%d has no answer and does not wait", n)
				}
			}
			if len(open) > 0 && asked == 0 {
				t.Fatalf("%v wait and nobody is asked", open)
			}
		}
	})
}
