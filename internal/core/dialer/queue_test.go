// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueueAgainstSorting puts, moves and removes entries over several blocks
// and compares with a sorted list.
func TestQueueAgainstSorting(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewPCG(seed, 0))
	var q queue
	want := make(map[*entry]place)
	entries := make([]*entry, 3*blockLen+7)
	for i := range entries {
		entries[i] = &entry{pos: notQueued}
	}
	for seq := range uint64(40_000) {
		e := entries[rng.IntN(len(entries))]
		if e.pos != notQueued && rng.IntN(3) == 0 {
			q.remove(e)
			delete(want, e)
			continue
		}
		p := place{instant(rng.IntN(1000)), seq, e}
		q.put(e, p.due, seq)
		want[e] = p
	}
	sorted := make([]place, 0, len(want))
	for _, p := range want {
		sorted = append(sorted, p)
	}
	slices.SortFunc(sorted, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
	for i, p := range sorted {
		if got := *q.at(0); got != p {
			t.Fatalf("seed %d: place %d is %+v, want %+v", seed, i, got, p)
		}
		q.remove(p.e)
	}
	if q.len != 0 || len(q.blocks) > 2 {
		t.Errorf("%d places in %d blocks are left", q.len, len(q.blocks))
	}
}
