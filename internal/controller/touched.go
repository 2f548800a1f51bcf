// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"slices"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/store"
)

// touched gathers what has changed in the store since a loop looked last, by
// what it was then: zero records stand for none. So the loop asks only about
// those whom a change concerns, however many changes there were. It holds one
// entry for each record at most.
type touched struct {
	identities map[ginnel.IdentityID]struct{}
	services   map[ginnel.ServiceID]ginnel.Service
	routers    map[ginnel.RouterID]ginnel.Router
	policies   map[ginnel.PolicyID]ginnel.Policy
}

func newTouched() *touched {
	return &touched{
		identities: make(map[ginnel.IdentityID]struct{}), services: make(map[ginnel.ServiceID]ginnel.Service),
		routers: make(map[ginnel.RouterID]ginnel.Router), policies: make(map[ginnel.PolicyID]ginnel.Policy),
	}
}

func (t *touched) empty() bool {
	return len(t.identities) == 0 && len(t.services) == 0 && len(t.routers) == 0 && len(t.policies) == 0
}

// note takes a change. What it was before the first one counts.
func (t *touched) note(change store.Change) {
	switch change.Kind {
	case store.KindIdentity:
		t.identities[ginnel.IdentityID(change.ID)] = struct{}{}
	case store.KindService:
		keepFirst(t.services, ginnel.ServiceID(change.ID), change.Old)
	case store.KindRouter:
		keepFirst(t.routers, ginnel.RouterID(change.ID), change.Old)
	case store.KindPolicy:
		keepFirst(t.policies, ginnel.PolicyID(change.ID), change.Old)
	case store.KindNetwork, store.KindTerminator, store.KindLink, store.KindEnrollment:
		// Nobody may more or less for them.
	}
}

func keepFirst[K comparable, R any](of map[K]R, id K, old any) {
	if _, known := of[id]; !known {
		was, _ := old.(R) // nil: there was none
		of[id] = was
	}
}

// oldPolicies compiles the policies as they were.
func (t *touched) oldPolicies() *policy.Set {
	return policy.Compile(slices.DeleteFunc(slices.Collect(maps.Values(t.policies)), func(p ginnel.Policy) bool { return p.ID == "" }))
}

// newPolicies compiles them as they are.
func (t *touched) newPolicies(view *store.View) *policy.Set {
	var are []ginnel.Policy
	for id := range t.policies {
		if p, ok := view.Policies().Get(id); ok {
			are = append(are, p)
		}
	}
	return policy.Compile(are)
}
