// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

// TestHostilePeer lets the other end and the routers say anything at any time: the
// end may reset the circuit, but it keeps its invariants and its bounds.
func TestHostilePeer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, window, total = 50_000, 40_000, 1 << 20
		now, budget := epoch(), NewBudget(total)
		role := Role(rapid.IntRange(0, 1).Draw(t, "role"))
		f, err := New(now, Config{Role: role, Budget: budget, MaxRetained: most, MaxWindow: window})
		if err != nil {
			t.Fatal(err)
		}
		offset := func() uint64 {
			near := []uint64{0, 1, f.out.base, f.out.next, f.out.fresh, f.out.end, f.out.end + 1, f.out.end + 2, 1<<64 - 1, f.out.base + f.out.fresh/2}
			return rapid.SampledFrom(near).Draw(t, "offset")
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			gen := rapid.SampledFrom([]uint32{0, f.generation, f.generation, f.generation, f.generation + 1}).Draw(t, "generation")
			if gen > 2000 {
				return
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			hostileStep(t, f, now, gen, offset)
			for fr, ok := f.Next(now); ok; fr, ok = f.Next(now) {
				if fr.Kind == Data && (len(fr.Payload()) == 0 || len(fr.Payload()) > MaxPayload) {
					t.Fatalf("data of %d bytes", len(fr.Payload()))
				}
			}
			checkInvariants(t, f, now, most, window)
		}
		f.Close()
		if _, ok := f.Next(now); ok || budget.Left() != total || !f.Done() {
			t.Fatalf("after Close: %d bytes of budget are gone", total-budget.Left())
		}
	})
}

func hostileStep(t *rapid.T, f *Flow, now time.Time, gen uint32, offset func() uint64) {
	switch rapid.IntRange(0, 17).Draw(t, "what") {
	case 0, 1, 2:
		f.Append(make([]byte, rapid.IntRange(1, 40_000).Draw(t, "size")))
	case 3:
		f.Consume(now, rapid.IntRange(0, int(f.received-f.consumed)-boolInt(f.eofIn && f.consumed < f.received)).Draw(t, "size"))
	case 4:
		f.OnStart(now, gen)
	case 5, 6:
		f.OnData(now, gen, rapid.IntRange(0, MaxPayload).Draw(t, "size"))
	case 7:
		f.OnEOF(now, gen)
	case 8:
		f.OnAck(now, gen, offset())
	case 9:
		f.OnCredit(now, gen, rapid.SampledFrom([]uint64{0, 1 << 15, 1 << 16, 1<<64 - 1}).Draw(t, "limit"))
	case 10:
		f.OnPathBroken(now, gen)
	case 11:
		f.OnPathMended(now, gen)
	case 12:
		f.OnConnLost(now, gen)
	case 13:
		f.OnConnBack(now, gen)
	case 14:
		f.OnResume(now, gen, f.number, offset())
	case 15:
		if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
			f.OnReset(now, gen, ginnel.Revoked, "")
		} else if f.cfg.Role == Client {
			_ = f.NewPath(now, gen)
		}
	case 16:
		if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
			f.CloseWrite()
		}
	case 17:
		f.Tick(now)
		if at := f.Deadline(); !at.IsZero() && !at.After(now) {
			t.Fatalf("deadline %v is not after now", at)
		}
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func checkInvariants(t *rapid.T, f *Flow, now time.Time, most, window int) {
	o := &f.out
	switch {
	case o.base > o.next || o.next > o.fresh || o.fresh > o.end:
		t.Fatalf("offsets %d %d %d %d are out of order", o.base, o.next, o.fresh, o.end)
	case f.Retained() > most+MaxPayload:
		t.Fatalf("%d bytes are retained", f.Retained())
	case f.consumed > f.received || f.received-f.consumed > uint64(most+window+MaxPayload+1):
		t.Fatalf("%d bytes received, %d consumed", f.received, f.consumed)
	case f.credit.sent > max(f.credit.limit, InitialWindow):
		t.Fatalf("%d bytes sent on credit of %d", f.credit.sent, f.credit.limit)
	case f.state == closed && (o.purse.out != 0 || f.window.held != 0):
		t.Fatalf("a closed end holds memory")
	case f.state != closed && f.window.held < int32(f.window.granted-f.window.consumed)+f.window.carry:
		t.Fatalf("the budget holds %d for a window of %d", f.window.held, f.window.granted-f.window.consumed)
	case f.state == silent && !now.Equal(f.spokeAt) && f.spokeAt != epoch():
		t.Fatal("a silent host spoke")
	}
}
