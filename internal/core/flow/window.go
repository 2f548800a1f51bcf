// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Limits of a window.
const (
	// MaxWindow is how far a window grows unless told otherwise, in bytes.
	MaxWindow = 16 << 20
	// slack is what a turn of half a window may take beyond the round trip of the hop:
	// the scheduler's pauses. What it costs is that as many bytes may stand in the
	// hop's connection as go through in that time, and other circuits wait for them.
	slack = 200 * time.Microsecond
	// easyWindow is how far a window grows even while its turns take easyRound: on
	// a busy machine many circuits wait long for theirs, and who got one early
	// would grow, and get more of them, while the others stay small.
	easyWindow = 256 << 10
	easyRound  = 50 * time.Millisecond
	// shrinkAfter is the time that a window takes to be used up which halves it.
	shrinkAfter = 5 * time.Second
)

// Window is the receiving side of a hop: what the sender may send, and when to
// tell it. It starts with InitialWindow and doubles while it is used up within
// about a round trip of the hop and the budget gives; a window that is used slowly
// is granted smaller. Not safe for concurrent use.
//
// Invariants: consumed <= received <= granted; the budget holds at least
// granted - consumed + carry for it; when all is consumed, at least one frame of
// MaxPayload may come.
type Window struct {
	budget   *Budget
	received uint64
	consumed uint64
	granted  uint64
	judged   uint64 // what was consumed at since
	since    int64  // ns since 1970: when size was last looked at, or of the start
	// In bytes, at most a few MaxWindow. A router has two windows for each row, so
	// their memory counts.
	size  int32 // what a grant reaches beyond consumed
	most  int32 // bound of size
	carry int32 // of an earlier count that are not consumed yet
	held  int32 // taken from budget
}

// Open takes the initial window from the budget; most bounds its growth (0:
// MaxWindow). The error is ginnel.Busy when the budget is exhausted.
func (w *Window) Open(now time.Time, b *Budget, most int) error {
	if !b.Take(InitialWindow) {
		return ginnel.Busy
	}
	if most == 0 {
		most = MaxWindow
	}
	*w = Window{
		budget: b, granted: InitialWindow, size: InitialWindow,
		most: int32(max(most, InitialWindow)), held: InitialWindow, since: now.UnixNano(),
	}
	return nil
}

// Close gives everything back to the budget. A closed window may be opened again.
func (w *Window) Close() {
	if w.budget != nil {
		w.budget.Give(int(w.held))
	}
	*w = Window{}
}

// Restart begins to count anew: the hop's connection or the path was replaced.
// Bytes that were received and not consumed stay in the account until Consume
// has been told of them.
func (w *Window) Restart(now time.Time) {
	carry := int32(w.Waiting())
	w.received, w.consumed, w.granted, w.judged = 0, 0, InitialWindow, 0
	w.size, w.carry, w.since = InitialWindow, carry, now.UnixNano()
	w.settle()
}

// Receive counts n bytes of DATA that came; false when they exceed the credit,
// which an honest peer never does.
func (w *Window) Receive(n int) bool {
	if uint64(n) > w.granted-w.received {
		return false
	}
	w.received += uint64(n)
	return true
}

// Waiting gives the bytes received and not yet consumed.
func (w *Window) Waiting() int { return int(w.carry) + int(w.received-w.consumed) }

// Consume counts n received bytes as passed on, thrown away or read, the oldest
// first. When send is true, a CREDIT frame with limit is due. rtt is the round
// trip of this hop; 0 if unknown.
func (w *Window) Consume(now time.Time, n int, rtt time.Duration) (limit uint64, send bool) {
	old := min(n, int(w.carry))
	w.carry -= int32(old)
	w.consumed += uint64(n - old)
	open := int(w.granted - w.received)
	if open >= max(MaxPayload, int(w.size)/2) {
		w.settle()
		return 0, false
	}
	// Small steps wait until they are worth a frame, unless nothing is left to
	// be consumed: then nobody would call again.
	gain := int64(w.consumed) + int64(w.size) - int64(w.granted)
	if gain < int64(w.size/4) && (w.received != w.consumed || gain <= 0) {
		w.settle()
		return 0, false
	}
	w.resize(now, rtt)
	if next := w.consumed + uint64(w.size); next > w.granted {
		w.granted, send = next, true
	}
	w.settle()
	return w.granted, send
}

// resize grows or shrinks the window by how long it took to be used up. That is
// looked at when it has been used up twice: what stood in a socket while its reader
// did not have its turn comes at once, and more than a window never stands there.
// Bytes that stand waiting show that the reader sets the pace: no growth then.
func (w *Window) resize(now time.Time, rtt time.Duration) {
	// Half a window goes in a round trip: the other half is on its way meanwhile.
	used, limit := 2*w.size, 4*(rtt+slack)*3/2
	if w.size < easyWindow {
		used, limit = 0, max(rtt, easyRound)*3/2
	}
	took := time.Duration(now.UnixNano() - w.since)
	switch {
	case took >= shrinkAfter:
		w.size = max(InitialWindow, w.size>>min(took/shrinkAfter, 24))
	case w.consumed-w.judged < uint64(used):
		return
	case took <= limit && w.received-w.consumed <= uint64(w.size/2) && 2*w.size <= w.most:
		if more := w.size; w.budget.Take(int(more)) {
			w.held += more
			w.size *= 2
		}
	}
	w.since, w.judged = now.UnixNano(), w.consumed
}

// settle brings what the budget holds in line with what may have to be buffered.
// Only a restart, where bytes are in memory already, can make it grow.
func (w *Window) settle() {
	need := max(w.size, int32(w.granted-w.consumed)) + w.carry
	switch {
	case need < w.held:
		w.budget.Give(int(w.held - need))
	case need > w.held:
		w.budget.Hold(int(need - w.held))
	}
	w.held = need
}
