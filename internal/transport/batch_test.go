// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "testing"

func TestBatchWakesEachOnceWhenFlushed(t *testing.T) {
	b := &Batch{}
	one, two := make(chan struct{}, 1), make(chan struct{}, 1)
	two <- struct{}{} // awake already: Flush must not wait
	b.Wake(one)
	b.Wake(one)
	b.Wake(two)
	if len(one) != 0 {
		t.Error("woken before the flush")
	}
	b.Flush()
	if len(one) != 1 || len(two) != 1 {
		t.Errorf("%d and %d wait, want 1 each", len(one), len(two))
	}
	<-one
	b.Flush()
	if len(one) != 0 {
		t.Error("woken again by the next flush")
	}
}

func TestBatchWakesAtOnceWhenItCannotRemember(t *testing.T) {
	var none *Batch
	full := &Batch{}
	for range maxDirty {
		full.Wake(make(chan struct{}, 1))
	}
	for _, b := range []*Batch{none, full} {
		c := make(chan struct{}, 1)
		b.Wake(c)
		if len(c) != 1 {
			t.Error("not woken")
		}
	}
}
