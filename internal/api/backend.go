// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"iter"
	"net/http"

	"github.com/ginnel/ginnel"
)

// Collection is one kind of things that can be managed: C asks for a new one
// or for a change, V is what is shown. Errors are *ginnel.DialError or *Problem.
type Collection[C, V any] interface {
	// List gives all, by id.
	List(ctx context.Context) ([]V, error)
	Get(ctx context.Context, id string) (V, error)
	// Create makes a thing; it is a conflict when the id is taken.
	Create(ctx context.Context, c C) (Created, error)
	// Update replaces what an operator may change of the thing called id.
	Update(ctx context.Context, id string, c C) error
	Delete(ctx context.Context, id string) error
}

// Circuits shows and ends running circuits, and tells how they came about.
type Circuits interface {
	ListCircuits(ctx context.Context) ([]Circuit, error)
	GetCircuit(ctx context.Context, id string) (Circuit, error)
	DeleteCircuit(ctx context.Context, id string) error
	// ExplainCircuit gives the set-ups of a circuit that are remembered, the
	// oldest first; it is an error when there is none.
	ExplainCircuit(ctx context.Context, id string) ([]Explanation, error)
	// WatchCircuits yields dials, resumes and circuits as they end, until ctx
	// ends or the reader is too slow.
	WatchCircuits(ctx context.Context) iter.Seq[CircuitEvent]
}

// Dialer shows the dial machine.
type Dialer interface {
	// ListDials gives every router that the machine tracks.
	ListDials(ctx context.Context) ([]Dial, error)
	// InspectDial gives one router, tracked or not.
	InspectDial(ctx context.Context, id ginnel.RouterID) (Dial, error)
	// ValidateDials compares store, channels and machine for every router.
	ValidateDials(ctx context.Context) ([]Dial, error)
	// Redial makes the machine dial a waiting router now.
	Redial(ctx context.Context, id ginnel.RouterID) error
	// WatchDials yields changes until ctx ends or the reader is too slow.
	WatchDials(ctx context.Context) iter.Seq[DialEvent]
}

// Backend is a controller, as its API needs it. Nil parts are not served.
type Backend struct {
	Status      func(ctx context.Context) (Status, error)
	Routers     Collection[RouterCreate, Router]
	Identities  Collection[IdentityCreate, Identity]
	Services    Collection[ginnel.Service, Service]
	Terminators Collection[ginnel.Terminator, Terminator]
	Policies    Collection[ginnel.Policy, ginnel.Policy]
	Links       Collection[ginnel.LinkSpec, Link]
	Circuits    Circuits
	Dialer      Dialer
	Metrics     http.Handler // answers GET /metrics
	// Wrote hears of every write once it is done, has failed or was refused to who may
	// only read; nil: nobody does.
	Wrote func(w Write)
	// Why says what policies let an identity do with a service.
	Why func(ctx context.Context, identity ginnel.IdentityID, service ginnel.ServiceID) (Why, error)
	// Token makes a new enrollment token for a router or identity.
	Token func(ctx context.Context, role ginnel.Role, id string, t TokenCreate) (Created, error)
}
