// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Action is something to be done, or to be known: Dial, Hangup, Close and Scan
// are to be carried out; Answered, Moved and Ignored are for logs, metrics and
// those who watch.
//
//sumtype:decl
type Action interface{ action() }

type (
	// Dial asks for a connection to the router. The answer is one DialDone or
	// Duplicate with the same Attempt, unless a Hangup comes first.
	Dial struct {
		Key     Key
		Attempt uint64
		Address ginnel.Address
	}

	// Hangup ends a dial: cancel it, its answer is no longer wanted. Its worker
	// counts as free from here on.
	Hangup struct {
		Key     Key
		Attempt uint64
	}

	// Close asks to close a connection: its router was disabled, or it came up
	// after its dial was hung up.
	Close struct {
		Key  Key
		Conn uint64
	}

	// Scan asks for all routers of the store, as ScanPages with this number.
	// It replaces an earlier one that is not through.
	Scan struct{ Scan uint64 }

	// Answered says how a dial ended that was not hung up for another reason
	// than its time; Err is ErrTimeout then, and nil for a success.
	Answered struct {
		Key     Key
		Attempt uint64
		Err     error
	}

	// Moved says that a router changed its state, or that its dial was put at
	// another instant: From and To are NeedsDial then. Why is a constant text.
	Moved struct {
		Key      Key
		From, To State
		Why      string
		// NextDial: NeedsDial: when it is dialed. Dialing: when it was due.
		// Connected: when it is checked. None: zero.
		NextDial   time.Time
		RetryDelay time.Duration
		AddrIndex  int
		Attempts   int
	}

	// Ignored says that an event changed nothing because it was late or of
	// another connection. Why is a constant text.
	Ignored struct {
		Key Key
		Why string
	}
)

func (Dial) action()     {}
func (Hangup) action()   {}
func (Close) action()    {}
func (Scan) action()     {}
func (Answered) action() {}
func (Moved) action()    {}
func (Ignored) action()  {}
