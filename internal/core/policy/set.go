// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/ginnel/ginnel"
)

// Set is the compiled policies of a network. It never changes: safe for use by
// any number of goroutines. The zero value allows nothing.
type Set struct {
	dial, bind, edge table
}

// table is the policies of one kind.
type table struct {
	policies []ginnel.Policy // by number; a number that is free has the zero one
	numbers  map[ginnel.PolicyID]int
	free     []int
	// sides are the lists of which all must match: identities and services, and
	// for edge-router policies routers.
	sides []*index
}

// Places in table.sides.
const (
	identitySide = iota
	serviceSide
	routerSide
)

// Compile gives the set of the policies; those of an unknown kind allow
// nothing. Nothing passed in is changed; the lists in it are kept.
func Compile(policies []ginnel.Policy) *Set { return new(Set).With(policies, nil) }

// With gives the set without the policies that are gone and with those put, in
// place of the ones of the same id. It costs in proportion to what it is given,
// and some copying of memory; s stays as it is.
func (s *Set) With(put []ginnel.Policy, gone []ginnel.PolicyID) *Set {
	return &Set{
		dial: s.dial.with(ginnel.DialPolicy, put, gone),
		bind: s.bind.with(ginnel.BindPolicy, put, gone),
		edge: s.edge.with(ginnel.EdgeRouterPolicy, put, gone),
	}
}

// with is With for the policies of one kind. A policy of another kind is gone
// from this one.
func (t table) with(kind ginnel.PolicyKind, put []ginnel.Policy, gone []ginnel.PolicyID) table {
	copied := false
	write := func() {
		if !copied {
			t = t.clone(kind)
			copied = true
		}
	}
	drop := func(id ginnel.PolicyID) {
		if i, ok := t.numbers[id]; ok {
			write()
			t.drop(i)
		}
	}
	for _, id := range gone {
		drop(id)
	}
	for _, p := range put {
		drop(p.ID)
		if p.Kind == kind {
			write()
			t.put(p)
		}
	}
	return t
}

// clone gives a table that can be changed while others read this one.
func (t table) clone(kind ginnel.PolicyKind) table {
	if t.sides == nil {
		return newTable(kind)
	}
	t.policies, t.numbers, t.free = slices.Clone(t.policies), maps.Clone(t.numbers), slices.Clone(t.free)
	t.sides = slices.Clone(t.sides)
	for i, x := range t.sides {
		t.sides[i] = x.clone()
	}
	return t
}

func newTable(kind ginnel.PolicyKind) table {
	lists := []func(ginnel.Policy) []string{
		func(p ginnel.Policy) []string { return p.Identities },
		func(p ginnel.Policy) []string { return p.Services },
	}
	if kind == ginnel.EdgeRouterPolicy {
		all := []string{"#" + All}
		lists[serviceSide] = func(p ginnel.Policy) []string {
			if len(p.Services) == 0 { // it means all of them
				return all
			}
			return p.Services
		}
		lists = append(lists, func(p ginnel.Policy) []string { return p.Routers })
	}
	t := table{numbers: make(map[ginnel.PolicyID]int)}
	for _, list := range lists {
		t.sides = append(t.sides, &index{list: list, rows: make(map[selector]row)})
	}
	return t
}

// put adds a policy whose id is not there.
func (t *table) put(p ginnel.Policy) {
	i := len(t.policies)
	if last := len(t.free) - 1; last >= 0 {
		i, t.free = t.free[last], t.free[:last]
		t.policies[i] = p
	} else {
		t.policies = append(t.policies, p)
	}
	t.numbers[p.ID] = i
	for _, x := range t.sides {
		x.put(i, p)
	}
}

// drop takes policy i out.
func (t *table) drop(i int) {
	p := t.policies[i]
	for _, x := range t.sides {
		x.drop(i, p)
	}
	delete(t.numbers, p.ID)
	t.policies[i] = ginnel.Policy{}
	t.free = append(t.free, i)
}

// CanDial reports whether a dial policy lets the identity dial the service.
func (s *Set) CanDial(i ginnel.Identity, sv ginnel.Service) bool {
	return !i.Disabled && s.dial.joins(part{identitySide, identity(i)}, part{serviceSide, service(sv)})
}

// CanBind reports whether a bind policy lets the identity host the service.
func (s *Set) CanBind(i ginnel.Identity, sv ginnel.Service) bool {
	return !i.Disabled && s.bind.joins(part{identitySide, identity(i)}, part{serviceSide, service(sv)})
}

// CanUse reports whether an edge-router policy lets the identity reach or host
// the service over the router.
func (s *Set) CanUse(i ginnel.Identity, sv ginnel.Service, r ginnel.Router) bool {
	return !i.Disabled && !r.Disabled &&
		s.edge.joins(part{identitySide, identity(i)}, part{serviceSide, service(sv)}, part{routerSide, router(r)})
}

// CanConnect reports whether an edge-router policy lets the identity use the
// router for any service at all.
func (s *Set) CanConnect(i ginnel.Identity, r ginnel.Router) bool {
	return !i.Disabled && !r.Disabled && s.edge.joins(part{identitySide, identity(i)}, part{routerSide, router(r)})
}

// part is an entity on its side of a question.
type part struct {
	side int
	entity
}

// inline is for how many words of policies a question needs no allocation.
const inline = 32

// joins reports whether one policy names every part on its side.
func (t *table) joins(parts ...part) bool {
	n := words(len(t.policies))
	if n == 0 {
		return false
	}
	var space [2 * inline]uint64
	both := bitset(space[:])
	if n > inline {
		both = make(bitset, 2*n)
	}
	set, next := both[:n:n], both[n:2*n]
	t.sides[parts[0].side].find(parts[0].entity, set)
	for _, p := range parts[1:] {
		clear(next)
		t.sides[p.side].find(p.entity, next)
		set.and(next)
	}
	for i := range set.each {
		if t.sure(i, parts) {
			return true
		}
	}
	return false
}

func (t *table) sure(i int, parts []part) bool {
	for _, p := range parts {
		if !t.sides[p.side].sure(i, t.policies[i], p.entity) {
			return false
		}
	}
	return true
}
