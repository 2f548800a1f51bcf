// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// restingHost gives a host that is done, at rest, with nothing held.
func restingHost(t *testing.T, b *Budget) (*Flow, time.Time) {
	t.Helper()
	now := time.Unix(1000, 0)
	f, err := New(now, Config{Role: Host, Generation: 1, Budget: b})
	if err != nil {
		t.Fatal(err)
	}
	if f.Rest() {
		t.Fatal("a flow that is not done rests")
	}
	f.OnStart(now, 1)
	f.OnEOF(now, 1)
	f.CloseWrite()
	for _, ok := f.Next(now); ok; {
		_, ok = f.Next(now)
	}
	f.OnAck(now, 1, 1)
	if !f.Done() || !f.Rest() || f.Done() {
		t.Fatal("a done flow does not rest")
	}
	return f, now
}

// A resting end holds nothing, answers RESUME on this path and on others, and
// takes whatever else comes.
func TestRest(t *testing.T) {
	b := NewBudget(1 << 20)
	f, now := restingHost(t, b)
	if b.Left() != 1<<20 {
		t.Errorf("%d bytes are held", 1<<20-b.Left())
	}
	for _, generation := range []uint32{1, 7} {
		f.OnConnLost(now, generation)
		f.OnConnBack(now, generation)
		f.OnResume(now, generation, 3, 1)
		fr, ok := f.Next(now)
		if !ok || fr.Kind != Resume || fr.Number != 3 || fr.Offset != 1 || fr.Generation != generation {
			t.Errorf("generation %d: got %+v, %v, want the answer to RESUME", generation, fr, ok)
		}
		for _, more := f.Next(now); more; {
			_, more = f.Next(now)
		}
	}
	if b.Left() != 1<<20 {
		t.Errorf("%d bytes are held behind a resume", 1<<20-b.Left())
	}
	if f.OnData(now, 7, 0) || f.OnData(now, 7, 100) {
		t.Error("data behind the end was taken")
	}
	if fr, ok := f.Next(now); !ok || fr.Kind != Reset || !f.Done() {
		t.Errorf("got %+v, %v, want a reset", fr, ok)
	}
	f.Close()
	if b.Left() != 1<<20 {
		t.Errorf("left %d", b.Left())
	}
	f, now = restingHost(t, b)
	f.OnReset(now, 1, ginnel.PeerReset, "over")
	if !f.Done() || f.Err() != nil || b.Left() != 1<<20 {
		t.Errorf("done %v, %v, left %d", f.Done(), f.Err(), b.Left())
	}
}
