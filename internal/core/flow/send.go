// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import "time"

// Next gives the next frame to send, within credit and the state of the path;
// false when there is none until something else happens. It is called until it
// says false after every call that may have made a frame due: any On method,
// Append, CloseWrite, Consume, Reset, NewPath, Tick. Frames go out in the order
// given, under the two rules of the package comment.
func (f *Flow) Next(now time.Time) (Frame, bool) {
	fr, ok := f.next()
	if ok {
		f.spokeAt = now
		fr.Generation = f.generation
	}
	return fr, ok
}

func (f *Flow) next() (Frame, bool) {
	if f.state == silent || f.state == closed || f.detached {
		return Frame{}, false
	}
	if f.due != 0 {
		if fr, ok := f.nextDue(); ok {
			return fr, true
		}
	}
	if f.state != ready {
		return Frame{}, false
	}
	if raw, n := f.out.peek(); n > 0 {
		if !f.credit.Spend(n) {
			f.stall()
			return Frame{}, false
		}
		f.stalled = false
		f.out.advance()
		return Frame{Kind: Data, Raw: raw}, true
	}
	if f.ending && !f.eofSent {
		f.eofSent, f.eofEver = true, true
		return Frame{Kind: EOF}, true
	}
	return Frame{}, false
}

// stall counts the beginning of a wait for credit.
func (f *Flow) stall() {
	if !f.stalled {
		f.stalled = true
		f.stalls++
	}
}

// Unsent tells that n bytes of the DATA that Next gave for the path of generation were
// thrown away before they were sent, as rule 2 of the package comment wants.
func (f *Flow) Unsent(generation uint32, n int) {
	if generation == f.generation {
		f.credit.Unspend(n)
	}
}

// nextDue gives a frame that needs no credit. A broken path still has a first
// hop, whose credit goes on being counted.
func (f *Flow) nextDue() (Frame, bool) {
	switch {
	case f.due&duePath != 0:
		f.due &^= duePath
		if f.started || f.cfg.Role == Host {
			return Frame{Kind: Resume, Offset: f.received, Number: f.number}, true
		}
		f.started = true
		return Frame{Kind: Start}, true
	case f.due&dueReset != 0:
		fr := Frame{Kind: Reset, Code: f.code, Text: f.text}
		f.Close()
		return fr, true
	case f.due&dueGrant != 0:
		f.due &^= dueGrant
		return Frame{Kind: Grant, Offset: f.limit}, true
	case f.due&dueBroken != 0:
		f.due &^= dueBroken
		return Frame{Kind: PathBroken}, true
	case f.state != ready:
		return Frame{}, false
	case f.due&dueAck != 0:
		f.due &^= dueAck
		f.acked, f.ackAt = f.consumed, time.Time{}
		return Frame{Kind: Ack, Offset: f.acked}, true
	default:
		f.due &^= dueKeepAlive
		return Frame{Kind: KeepAlive}, true
	}
}
