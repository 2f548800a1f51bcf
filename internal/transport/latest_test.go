// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"

	"github.com/ginnel/ginnel/internal/wire"
)

// What a burst over many circuits took goes back when all of it is sent; what a few take
// is kept for the next ones.
func TestLatestGivesBackABurst(t *testing.T) {
	var l latest
	waits := func(circuits int) {
		for i := range circuits {
			frame := wire.AppendUint64Frame(nil, uint32(i+1), wire.Ack, 7)
			h, err := wire.ParseHeader(frame)
			if err != nil || !l.push(h, frame) {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		for i := range circuits {
			h, err := wire.ParseHeader(l.pop())
			if err != nil || h.Label != uint32(i+1) {
				t.Fatalf("frame %d: got %+v, %v", i, h, err)
			}
		}
		if l.pop() != nil {
			t.Fatal("a frame too many")
		}
	}
	waits(keepLatest)
	if l.made != keepLatest || l.spare == nil {
		t.Errorf("%d frames are kept, want %d", l.made, keepLatest)
	}
	waits(100 * keepLatest)
	if l.made != 0 || l.spare != nil || l.byKey != nil {
		t.Errorf("%d frames are kept of a burst", l.made)
	}
	waits(3)
}
