// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// State is where a router stands with the dialer.
type State uint8

// The states; the package comment says how they follow each other.
const (
	None State = iota
	NeedsDial
	Dialing
	Connected
)

// String gives none, NeedsDial, Dialing or Connected.
func (s State) String() string {
	switch s {
	case None:
		return "none"
	case NeedsDial:
		return "NeedsDial"
	case Dialing:
		return "Dialing"
	case Connected:
		return "Connected"
	}
	return fmt.Sprintf("state(%d)", s)
}

// MarshalText gives the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// instant is nanoseconds since the machine's first step.
type instant int64

// notQueued is the pos of an entry that stands in no queue.
const notQueued = -1

// entry is one tracked router. There may be a million, so fields are narrow.
type entry struct {
	key   Key
	addrs []ginnel.Address // never empty; shared with the Source, not to be changed
	// lastErr is why it was put off the last time; nil after a stable connection.
	lastErr error
	// attempt is the live dial of a Dialing entry that a worker took up; else 0.
	attempt uint64
	// since is when the state was entered, or when a Connected entry got
	// another connection.
	since instant
	// retryDelay is the latest delay after a failure; kept over own successes.
	retryDelay time.Duration
	attempts   uint32 // dials started since the last stable connection
	addrIndex  uint32 // < len(addrs)
	// pos is its place: in pool for a Dialing entry without attempt, else in
	// timers. There its due is nextDial of NeedsDial, when the dial must be over
	// of Dialing, and the re-check of Connected.
	pos   int32
	state State
}

// address is the one to be dialed next, or being dialed.
func (e *entry) address() ginnel.Address { return e.addrs[e.addrIndex] }

// rotate makes the next address the current one.
func (e *entry) rotate() { e.addrIndex = (e.addrIndex + 1) % uint32(len(e.addrs)) }

// refresh replaces the addresses, which are not empty, and reports whether the
// current one is still among them. It stays current then, wherever it stands.
func (e *entry) refresh(addrs []ginnel.Address) bool {
	current := e.address()
	e.addrs = addrs
	if int(e.addrIndex) < len(addrs) && addrs[e.addrIndex] == current {
		return true
	}
	if i := slices.Index(addrs, current); i >= 0 {
		e.addrIndex = uint32(i)
		return true
	}
	e.addrIndex %= uint32(len(addrs))
	return false
}

// forgive forgets the failures.
func (e *entry) forgive() {
	e.retryDelay, e.attempts, e.lastErr = 0, 0, nil
}
