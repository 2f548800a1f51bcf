// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

// Event is something that happened to a set-up.
//
//sumtype:decl
type Event interface{ event() }

// The events.
type (
	// Begin starts the first attempt.
	Begin struct{}

	// RouteAnswered is a router's answer to a Route.
	RouteAnswered struct {
		Router     ginnel.RouterID
		Generation uint32
		// Err is nil when the router has set up its part, the egress router its
		// connection included.
		Err *ginnel.DialError
		// Link that the refusal is about; may be empty.
		Link ginnel.LinkID
		// Answer holds the far end's first bytes, from the egress router. The
		// machine keeps it until it responds: the sender does not write to it again.
		Answer []byte
	}

	// Connecting says that the egress router has its part and is making the connection.
	Connecting struct {
		Router     ginnel.RouterID
		Generation uint32
	}

	// SendFailed says that a Route could not be sent.
	SendFailed struct {
		Router     ginnel.RouterID
		Generation uint32
		// Err is the cause; nil: the channel to the router would not take it.
		Err *ginnel.DialError
	}

	// RouterGone says that a router is no longer connected.
	RouterGone struct{ Router ginnel.RouterID }

	// LinkGone says that a link is down.
	LinkGone struct{ Link ginnel.LinkID }

	// Cancelled says that the client no longer waits.
	Cancelled struct{}

	// Tick says that Deadline has come.
	Tick struct{}
)

func (Begin) event()         {}
func (RouteAnswered) event() {}
func (Connecting) event()    {}
func (SendFailed) event()    {}
func (RouterGone) event()    {}
func (LinkGone) event()      {}
func (Cancelled) event()     {}
func (Tick) event()          {}

// Action is something to be done for a set-up.
//
//sumtype:decl
type Action interface{ action() }

// The actions.
type (
	// SendRoute asks a router to set up its part of the path. What cannot be
	// sent is reported with SendFailed.
	SendRoute struct {
		Router     ginnel.RouterID
		Generation uint32
		// Path of the attempt, shared by its routes; Router is Path.Routers[Position].
		Path       path.Path
		Position   int
		Terminator ginnel.Terminator
		// Deadline of the attempt.
		Deadline time.Time
		// Connect is how long the connection behind the egress router may take;
		// 0 for the other routers.
		Connect time.Duration
	}

	// SendUnroute takes a Route back, whether or not it has been answered. It
	// may fail silently: rows that nobody uses go by themselves.
	SendUnroute struct {
		Router     ginnel.RouterID
		Generation uint32
	}

	// Respond ends the set-up: the circuit is up.
	Respond struct {
		Terminator ginnel.Terminator
		Path       path.Path
		Generation uint32
		Answer     []byte  // the far end's first bytes
		Tried      []Tried // all attempts, the last one succeeded
	}

	// Fail ends the set-up: there is no circuit.
	Fail struct {
		Err   *ginnel.DialError // with the attempt list
		Tried []Tried
	}
)

func (SendRoute) action()   {}
func (SendUnroute) action() {}
func (Respond) action()     {}
func (Fail) action()        {}
