// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Router is a router as stored, and as it is now.
type Router struct {
	ginnel.Router
	Enrolled  bool       `json:"enrolled"`
	Connected bool       `json:"connected"`
	Since     *time.Time `json:"since,omitempty" doc:"when the ctrl channel came up"`
	Software  string     `json:"software,omitempty"`
	Edge      string     `json:"edge,omitempty" doc:"address for SDKs"`
}

// Identity is an identity as stored, and as it is now.
type Identity struct {
	ginnel.Identity
	Enrolled bool              `json:"enrolled"`
	Routers  []ginnel.RouterID `json:"routers,omitempty" doc:"edge routers it is connected to"`
}

// Service is a service as stored, and how many terminators it has now.
type Service struct {
	ginnel.Service
	Terminators int `json:"terminators"`
}

// Terminator is a terminator, stored or made by an SDK, with its costs.
type Terminator struct {
	ginnel.Terminator
	Checked   bool              `json:"checked" doc:"its router or host checks its health"`
	Unhealthy bool              `json:"unhealthy" doc:"its health check fails"`
	Effective ginnel.Precedence `json:"effective_precedence" doc:"failed while unhealthy, else precedence"`
	Dynamic   ginnel.Cost       `json:"dynamic_cost" doc:"of open circuits and failures"`
	Failure   ginnel.Cost       `json:"failure_cost" doc:"part of dynamic_cost; 0 ten minutes after the last failure"`
	Circuits  int               `json:"circuits" doc:"open"`
	InSetUp   int               `json:"in_set_up" doc:"circuits that this controller is setting up there"`
	SetUp     ginnel.Cost       `json:"set_up_cost" doc:"of those in set-up"`
	Cost      ginnel.Cost       `json:"cost" doc:"static, dynamic and set-up cost; a dial adds that of its path"`
	Online    bool              `json:"online" doc:"its router is connected"`
	Stored    bool              `json:"stored" doc:"false: bound by an SDK"`
}

// Link is a link that shall be or is.
type Link struct {
	ginnel.Link
	Cost   ginnel.Cost `json:"cost" doc:"what path choice counts"`
	Stored bool        `json:"stored" doc:"false: of a link group"`
	Load   *LinkLoad   `json:"load,omitempty" doc:"none: it carries nothing, or its routers have not said"`
}

// LinkLoad is what a link carried in the last few seconds, by the word of its two
// routers.
type LinkLoad struct {
	AToB uint64  `json:"a_to_b" doc:"bytes a second"`
	BToA uint64  `json:"b_to_a" doc:"bytes a second"`
	Busy float64 `json:"busy" doc:"share of the time in which frames had to wait, at the end where they waited more"`
}

// Circuit is a running circuit.
type Circuit struct {
	ginnel.Circuit
	BytesSent     uint64 `json:"bytes_sent" doc:"by the client"`
	BytesReceived uint64 `json:"bytes_received" doc:"by the client"`
	SentRate      uint64 `json:"sent_rate" doc:"bytes a second, by the client, in the last few seconds"`
	ReceivedRate  uint64 `json:"received_rate" doc:"bytes a second, by the client, in the last few seconds"`
}

// Dial is a router that the controller dials or watches.
type Dial struct {
	Router    ginnel.RouterID `json:"router"`
	State     string          `json:"state" doc:"NeedsDial, Dialing, Connected; none: connected or nothing to dial"`
	Address   string          `json:"address,omitempty" doc:"dialed now or next"`
	Addresses []string        `json:"addresses,omitempty"`
	Attempts  int             `json:"attempts"`
	Delay     ginnel.Duration `json:"delay"`
	Next      *time.Time      `json:"next,omitempty"`
	NextIn    ginnel.Duration `json:"next_in,omitempty" doc:"until next, by the controller's clock"`
	Since     *time.Time      `json:"since,omitempty"`
	LastError string          `json:"last_error,omitempty"`
	Outcome   string          `json:"outcome,omitempty" doc:"of the dial that last failed, as metrics count it"`
	ErrorAt   *time.Time      `json:"error_at,omitempty"`
	Connected bool            `json:"connected" doc:"a ctrl channel is up"`
	// Problem says how what is differs from what should be; empty: it does not.
	Problem string `json:"problem,omitempty"`
}

// DialEvent is a change of state of the dial machine.
type DialEvent struct {
	At       time.Time       `json:"at"`
	Router   ginnel.RouterID `json:"router"`
	From     string          `json:"from"`
	To       string          `json:"to"`
	Why      string          `json:"why" doc:"a constant text"`
	Next     *time.Time      `json:"next,omitempty"`
	Delay    ginnel.Duration `json:"delay"`
	Attempts int             `json:"attempts" doc:"dials since the last stable connection"`
	Address  string          `json:"address,omitempty"`
	Error    string          `json:"error,omitempty"`
	Outcome  string          `json:"outcome,omitempty" doc:"of a dial that failed, as metrics count it"`
}

// Status is a controller's own state.
type Status struct {
	Network    ginnel.NetworkID    `json:"network"`
	Controller ginnel.ControllerID `json:"controller"`
	Boot       ginnel.BootID       `json:"boot"`
	Software   string              `json:"software"`
	Revision   int64               `json:"revision" doc:"of the store, as the cache has it"`
	Age        ginnel.Duration     `json:"age" doc:"since the cache was known to be current"`
	Routers    int                 `json:"routers" doc:"connected"`
	Circuits   int                 `json:"circuits"`
	Ready      bool                `json:"ready" doc:"every enabled router has reported or ended its first dial"`
}

// Created answers the creation of a thing.
type Created struct {
	ID    string `json:"id"`
	Token string `json:"token,omitempty" doc:"one-time enrollment token of a router or identity"`
}

// RouterCreate asks for a router. CtrlAddresses are where it will listen for
// the controller; empty: it dials the controller.
type RouterCreate struct {
	ginnel.Router
	CtrlAddresses []string        `json:"ctrl_addresses,omitempty"`
	TokenLife     ginnel.Duration `json:"token_life,omitempty" doc:"0: 24 hours"`
}

// IdentityCreate asks for an identity.
type IdentityCreate struct {
	ginnel.Identity
	TokenLife ginnel.Duration `json:"token_life,omitempty" doc:"0: 24 hours"`
}

// TokenCreate asks for a new token in place of any earlier one; with it the
// thing may enroll another key.
type TokenCreate struct {
	TokenLife ginnel.Duration `json:"token_life,omitempty" doc:"0: 24 hours"`
}
