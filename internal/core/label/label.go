// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import "fmt"

// Sizes of a label's two parts.
const (
	slotBits = 20
	genBits  = 12
	// MaxSlots is the number of slots, slot 0 included, which no row ever has:
	// label 0 speaks of the connection itself.
	MaxSlots = 1 << slotBits
	genMask  = 1<<genBits - 1
)

// Label is a number that says which row a frame belongs to, with meaning on one
// connection only: slot in the upper 20 bits, generation of the slot in the lower 12.
type Label uint32

// New gives the label of a slot in one of its generations; more bits are cut off.
func New(slot uint32, gen uint16) Label {
	return Label(slot<<genBits | uint32(gen)&genMask)
}

// Slot gives the index of the label in the table.
func (l Label) Slot() uint32 { return uint32(l >> genBits) }

// Gen gives the generation of the slot.
func (l Label) Gen() uint16 { return uint16(l & genMask) }

// String gives slot.generation.
func (l Label) String() string { return fmt.Sprintf("%d.%d", l.Slot(), l.Gen()) }

// Kind says what is on one side of a row.
type Kind uint8

// The kinds of sides.
const (
	Link  Kind = iota // another router
	Edge              // an SDK on an edge connection
	Local             // an endpoint in this router
)

// Entry is one side of a row as the data path needs it.
type Entry struct {
	Kind Kind
	// Peer is the key of the link or edge connection; empty for Local.
	Peer string
	// Conn is the number of the connection in use; 0: there is none.
	Conn uint64
	// Arrive is the label of frames that come from this side.
	Arrive Label
	// Send is the label of frames that go to this side.
	Send Label
}

// Takes reports whether a frame with this label from this connection belongs to
// the row: the whole label counts, not the slot alone, and the connection.
func (e *Entry) Takes(l Label, conn uint64) bool {
	return l == e.Arrive && conn == e.Conn && conn != 0 && l != 0
}
