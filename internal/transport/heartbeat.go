// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"github.com/ginnel/ginnel/internal/wire"
)

// Beat is the rhythm of a connection's heartbeats. Both ends keep it.
type Beat struct {
	Every time.Duration // a probe is sent
	Dead  time.Duration // without hearing anything: the connection is given up
}

// BeatOf gives the rhythm of a protocol. An edge connection beats faster while
// it carries circuits.
func BeatOf(alpn string, circuits bool) Beat {
	switch {
	case alpn == wire.ALPNLink:
		return Beat{Every: time.Second, Dead: 3 * time.Second}
	case alpn == wire.ALPNEdge && circuits:
		return Beat{Every: time.Second, Dead: 3 * time.Second}
	case alpn == wire.ALPNEdge:
		return Beat{Every: 2 * time.Second, Dead: 6 * time.Second}
	default:
		return Beat{Every: 5 * time.Second, Dead: 15 * time.Second}
	}
}

// heartbeat decides when to probe and when to give up. It is told the time, in
// nanoseconds of one clock that never goes back.
//
// Anything heard counts as life: a peer that sends is alive, and one that does
// not hear us gives us up itself. Whether it takes what we send is the writing
// side's to find out.
type heartbeat struct {
	beat  Beat
	heard int64 // last
	sent  int64 // last probe
	due   int64 // when step was to be called next
}

// start begins at now with a probe at once.
func (h *heartbeat) start(now int64, beat Beat) {
	*h = heartbeat{beat: beat, heard: now, sent: now - int64(beat.Every), due: now}
}

// change sets another rhythm. A peer that was silent for as long as the old one
// allowed gets an interval of the new one to be heard.
func (h *heartbeat) change(now int64, beat Beat) {
	h.beat = beat
	h.heard = max(h.heard, now-int64(beat.Dead)+int64(beat.Every))
	h.due = now
}

// step says what to do at now, having last heard the peer at heard.
func (h *heartbeat) step(now, heard int64) (probe, dead bool) {
	h.heard = max(h.heard, heard)
	// We were not running when we should have: what the peer sent meanwhile
	// may lie unread. One more interval to read it.
	if now-h.due > int64(h.beat.Every) {
		h.heard = max(h.heard, now-int64(h.beat.Dead)+int64(h.beat.Every))
	}
	if now-h.heard >= int64(h.beat.Dead) {
		return false, true
	}
	if now-h.sent >= int64(h.beat.Every) {
		h.sent = now
		probe = true
	}
	h.due = min(h.sent+int64(h.beat.Every), h.heard+int64(h.beat.Dead))
	return probe, false
}
