// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"
)

// Labels are given in the order granted, each once, all or none.
func TestLabels(t *testing.T) {
	a, b := &fakeRouter{name: "A"}, &fakeRouter{name: "B"}
	var l labels
	now := time.Unix(1, 0)
	l.grant(a, []uint32{0, 1, 2})
	l.grant(b, []uint32{11})
	rows, short := l.take(now, []outlet{a, b})
	want := []rowLabels{{downOut: 11, downIn: 1}, {upIn: 11, upOut: 1}}
	if short != "" || len(rows) != 2 || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("got %v, %q", rows, short)
	}
	if _, short = l.take(now, []outlet{a, b}); short != "B" {
		t.Errorf("short of %q, want B", short)
	}
	l.grant(b, []uint32{12})
	if rows, _ = l.take(now, []outlet{b, a}); rows[0].downOut != 2 || rows[0].downIn != 12 {
		t.Errorf("got %v: the failed take has taken something", rows)
	}
	l.grant(a, make([]uint32, 10))
	for range 10 {
		l.grant(a, slicesOf(1, maxLabels))
	}
	if n := len(l.free[a]); n != maxLabels {
		t.Errorf("%d labels kept, at most %d", n, maxLabels)
	}
	l.gone(a)
	if len(l.free) != 1 {
		t.Error("an ended channel has labels")
	}
}

func slicesOf(value uint32, n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = value
	}
	return list
}

// Labels of Routes that never left come back, but not while a neighbour may
// still have a row with one of them.
func TestLabelsOfUnsentRoutes(t *testing.T) {
	a, b, c := &fakeRouter{name: "A"}, &fakeRouter{name: "B"}, &fakeRouter{name: "C"}
	path := []outlet{a, b, c}
	var l labels
	now := time.Unix(1, 0)
	l.grant(a, []uint32{1, 2})
	l.grant(b, []uint32{11, 12})
	l.grant(c, []uint32{21})
	rows, _ := l.take(now, path)
	l.unsent(path[1:], rows[1:], now.Add(labelRest))
	if _, short := l.take(now.Add(labelRest-1), path); short != "B" {
		t.Errorf("short of %q, want B", short)
	}
	again, short := l.take(now.Add(labelRest), path)
	if short != "" || again[1].upIn != 11 && again[1].upIn != 12 || again[2].upIn != 21 || again[0].downIn != 2 {
		t.Errorf("got %v, %q", again, short)
	}
	l.gone(c)
	l.unsent(path[2:], again[2:], now)
	if len(l.free)+len(l.resting[c]) != 2 {
		t.Errorf("an ended channel has labels: %v, %v", l.free, l.resting)
	}
}
