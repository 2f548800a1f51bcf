// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Deadline gives when Tick is due; zero when nothing waits for time. It moves
// with every frame: the owner need not move its timer when the deadline became
// later, for a Tick that comes early does nothing.
func (f *Flow) Deadline() time.Time {
	if f.state == closed {
		return time.Time{}
	}
	at := time.Time{}
	soonest := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if f.state == ready {
		soonest(f.heardAt.Add(silentAfter))
		if f.due&dueKeepAlive == 0 {
			soonest(f.spokeAt.Add(keepAliveAfter))
		}
		if !f.ackAt.IsZero() && f.due&dueAck == 0 {
			soonest(f.ackAt)
		}
		return at
	}
	soonest(f.since.Add(f.patience()))
	if !f.wantAt.IsZero() {
		soonest(f.wantAt)
	}
	return at
}

// patience is how long the end stays without a path.
func (f *Flow) patience() time.Duration {
	if f.cfg.Role == Host {
		return f.cfg.ResumeTimeout + hostPatience
	}
	return f.cfg.ResumeTimeout
}

// Tick does what time has made due.
func (f *Flow) Tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case f.state == closed:
	case f.state != ready:
		if due(f.since.Add(f.patience())) {
			f.giveUp()
		} else if due(f.wantAt) {
			f.wantAt = time.Time{}
			f.wish(now)
		}
	case due(f.heardAt.Add(silentAfter)):
		f.enterBroken(now, ginnel.IdleTimeout)
	default:
		if due(f.ackAt) {
			f.due |= dueAck
		}
		if due(f.spokeAt.Add(keepAliveAfter)) {
			f.due |= dueKeepAlive
			f.out.trim()
		}
	}
}

// wish says what would help: the client another path, a host that lost its
// connection another edge router. A host whose path broke elsewhere waits for the
// client, and when that should have come says to it that the path is broken: only
// the client can ask for another one, and it may not have heard.
func (f *Flow) wish(now time.Time) {
	switch told := f.since.Add(answerTimeout); {
	case f.cfg.Role == Client:
		f.want = WantPath
	case f.detached:
		f.want = WantAttach
	case !f.started: // nobody has come yet, who could be told
	case now.Before(told):
		f.wantAt = told
	default:
		f.due |= dueBroken
		f.wantAt = now.Add(answerTimeout)
	}
}

// giveUp ends a circuit that found no path in time.
func (f *Flow) giveUp() {
	f.code, f.text = f.lastCode, "no path to the other end"
	f.Close()
}
