// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

// Key names a router, or whatever else is dialed. Users convert their ids.
type Key string

// Event is something that happened.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Tick says that time has passed. It starts what is due; see Deadline.
	Tick struct{}

	// ScanPage is a part of the answer to a Scan: routers of the store, whether
	// known already or not. Pages are taken in the order of their keys and hold
	// a few hundred keys each, so that the loop is free in between. Pages of an
	// earlier scan are ignored.
	ScanPage struct {
		Scan uint64
		Keys []Key
	}

	// Updated says that a router was created or changed in the store. Its
	// addresses are read from the Source. A Disabled one is removed and its
	// channel is closed.
	Updated struct {
		Key      Key
		Disabled bool
	}

	// Deleted says that a router was deleted from the store. To close its
	// channel is left to whoever revokes its identity.
	Deleted struct{ Key Key }

	// ConnUp says that a connection to the router exists that no dial of this
	// machine made. Conn, never 0 and never used twice for one router, is now
	// its current connection. A successful dial is reported by DialDone alone;
	// an echo of it here changes nothing.
	ConnUp struct {
		Key  Key
		Conn uint64
	}

	// ConnLost says that a connection to the router is gone.
	ConnLost struct {
		Key  Key
		Conn uint64
	}

	// DialDone is the answer to a Dial. With Err nil, Conn is the new
	// connection's number. Err is kept for Status.LastError, so let it be small.
	DialDone struct {
		Key     Key
		Attempt uint64
		Conn    uint64
		Err     error
	}

	// Duplicate is the answer to a Dial that found this end and the router
	// already connected by Conn: no failure. A shell that holds no such
	// connection reports a failed DialDone instead: the identity is in use
	// elsewhere.
	Duplicate struct {
		Key     Key
		Attempt uint64
		Conn    uint64
	}

	// Redial is the operator's wish that a waiting router be dialed now.
	Redial struct{ Key Key }

	// ClockJump says that the machine slept or its clock was set; see ClockWatch.
	ClockJump struct{}

	// Reconfigured gives another configuration, which must be valid. It counts
	// from the next decision on; what is planned stays planned.
	Reconfigured struct{ Config Config }
)

func (Tick) event()         {}
func (ScanPage) event()     {}
func (Updated) event()      {}
func (Deleted) event()      {}
func (ConnUp) event()       {}
func (ConnLost) event()     {}
func (DialDone) event()     {}
func (Duplicate) event()    {}
func (Redial) event()       {}
func (ClockJump) event()    {}
func (Reconfigured) event() {}
