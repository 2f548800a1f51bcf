// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"iter"
	"time"

	"github.com/ginnel/ginnel"
)

// Stats counts since New, except Tracked, Running, Queued and Conns, which are
// as of now.
type Stats struct {
	Tracked int // routers with an entry
	Running int // live dials
	Queued  int // Dialing, waiting for a worker
	Conns   int // current connections

	Dials        uint64 // started
	Succeeded    uint64
	Failed       uint64 // timeouts included
	HungUp       uint64 // ended by us before their time
	Duplicates   uint64 // found the router connected
	PoolFull     uint64 // put off without a dial
	FastFailures uint64 // connections lost within FastFailureWindow
	MaxRunning   int    // most live dials at once
}

// Stats gives the counters.
func (d *Dialer) Stats() Stats {
	s := d.stats
	s.Tracked, s.Running = len(d.entries), d.running
	s.Queued, s.Conns = d.pool.len, len(d.conns)
	return s
}

// Scanned reports whether a scan of the store has begun since New; before the
// first, routers that nobody spoke of are not tracked.
func (d *Dialer) Scanned() bool { return d.scan.number > 0 }

// Status is what an operator sees of one router.
type Status struct {
	Key        Key
	State      State
	Addresses  []ginnel.Address // not to be changed
	AddrIndex  int              // the one dialed next, or being dialed
	Attempt    uint64           // the live dial; 0: none, Dialing waits for a worker
	Attempts   int              // dials since the last stable connection
	RetryDelay time.Duration
	NextDial   time.Time // NeedsDial only
	LastError  error     // why it was put off the last time
	Since      time.Time // when the state was entered
	Conn       uint64    // the current connection; 0: none
}

// Address gives the address dialed next, or being dialed; empty if not tracked.
func (s Status) Address() ginnel.Address {
	if s.AddrIndex < len(s.Addresses) {
		return s.Addresses[s.AddrIndex]
	}
	return ""
}

// Status tells where a router stands; false when it is neither tracked nor
// connected.
func (d *Dialer) Status(key Key) (Status, bool) {
	if e := d.entries[key]; e != nil {
		return d.status(e), true
	}
	conn, up := d.conns[key]
	return Status{Key: key, Conn: conn}, up
}

// All gives every tracked router in no order. The Dialer must not step meanwhile.
func (d *Dialer) All() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for _, e := range d.entries {
			if !yield(d.status(e)) {
				return
			}
		}
	}
}

func (d *Dialer) status(e *entry) Status {
	s := Status{
		Key: e.key, State: e.state, Addresses: e.addrs, AddrIndex: int(e.addrIndex),
		Attempt: e.attempt, Attempts: int(e.attempts), RetryDelay: e.retryDelay,
		LastError: e.lastErr, Since: d.at(e.since), Conn: d.conns[e.key],
	}
	if e.state == NeedsDial {
		s.NextDial = d.at(d.due(e))
	}
	return s
}
