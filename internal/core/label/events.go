// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"time"

	"github.com/ginnel/ginnel"
)

// RowID names a row; never used twice by a Table.
type RowID uint64

// Event is something that happened.
//
//sumtype:decl
type Event interface{ isEvent() }

// End is one side of a row as a Route asks for it.
type End struct {
	Kind Kind
	// Peer is the key of the link or edge connection; empty for Local.
	Peer string
	// Arrive is a label of this router, granted to the Route's channel. Links only:
	// on an edge connection the router picks both labels.
	Arrive Label
	// Send is a label of the neighbour. Links only.
	Send Label
}

// The events.
type (
	// ChannelUp tells of a new ctrl channel, by its number, which never repeats.
	ChannelUp struct{ Channel uint64 }
	// ChannelDown tells that a ctrl channel ended.
	ChannelDown struct{ Channel uint64 }
	// PeerUp tells of a new connection to a neighbour: a link or an edge connection.
	// Its number never repeats and is not 0.
	PeerUp struct {
		Peer string
		Boot ginnel.BootID
		Conn uint64
	}
	// PeerDown tells that a connection to a neighbour ended.
	PeerDown struct {
		Peer string
		Conn uint64
	}
	// Route asks for a row; it is answered by Install or Refuse.
	Route struct {
		Channel    uint64
		Circuit    ginnel.CircuitID
		Generation uint32
		Deadline   time.Time
		Ends       [2]End // the client's side first
	}
	// Unroute ends a row, if it is there.
	Unroute struct {
		Circuit    ginnel.CircuitID
		Generation uint32
	}
	// Moved tells that a circuit's client has come over a row: it uses no older path.
	Moved struct{ Row RowID }
	// Seen answers a Check: when the row last saw a frame; zero: never.
	Seen struct {
		Row  RowID
		Last time.Time
	}
	// Ended tells that the circuit is over as far as the router saw: RESET passed.
	// Behind EOF in both directions bytes may still stand, and a slow reader.
	Ended struct{ Row RowID }
	// Tick tells that the Deadline has come.
	Tick struct{}
)

func (ChannelUp) isEvent()   {}
func (ChannelDown) isEvent() {}
func (PeerUp) isEvent()      {}
func (PeerDown) isEvent()    {}
func (Route) isEvent()       {}
func (Unroute) isEvent()     {}
func (Moved) isEvent()       {}
func (Seen) isEvent()        {}
func (Ended) isEvent()       {}
func (Tick) isEvent()        {}

// Action is something to be done.
//
//sumtype:decl
type Action interface{ isAction() }

// Control is a frame that a router sends about a path.
type Control uint8

// The controls.
const (
	PathBroken Control = iota
	PathMended
)

// Why says why a row went.
type Why uint8

// The reasons.
const (
	Unrouted   Why = iota // by Unroute
	Unused                // never confirmed
	Idle                  // no frame for too long
	PeerGone              // a neighbour's connection did not come back
	PeerReborn            // a neighbour's process is another
	Left                  // by its circuit, for another path
)

// The actions.
type (
	// Grant gives a controller labels, each for one Route by this channel.
	Grant struct {
		Channel uint64
		Labels  []Label
	}
	// Install puts a row in place: for each side that is not Local, at the slot of
	// its Arrive. Then the Route is confirmed.
	Install struct {
		Row        RowID
		Channel    uint64
		Circuit    ginnel.CircuitID
		Generation uint32
		Ends       [2]Entry
	}
	// Refuse answers a Route that is not carried out.
	Refuse struct {
		Channel    uint64
		Circuit    ginnel.CircuitID
		Generation uint32
		Code       ginnel.Code
		Text       string
	}
	// Rebind changes the connection of a side; 0: there is none for now.
	Rebind struct {
		Row  RowID
		Side int
		Conn uint64
	}
	// Send sends a control frame to a side.
	Send struct {
		Row     RowID
		Side    int
		Control Control
	}
	// Check asks for a Seen of the row.
	Check struct{ Row RowID }
	// Clear takes a row out of the slots of its Arrive labels.
	Clear struct {
		Row        RowID
		Circuit    ginnel.CircuitID
		Generation uint32
		Arrive     [2]Label // 0: none
		Why        Why
	}
)

func (Grant) isAction()   {}
func (Install) isAction() {}
func (Refuse) isAction()  {}
func (Rebind) isAction()  {}
func (Send) isAction()    {}
func (Check) isAction()   {}
func (Clear) isAction()   {}
