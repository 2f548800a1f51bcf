// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
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
	policies []ginnel.Policy // by id
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
func Compile(policies []ginnel.Policy) *Set {
	return &Set{
		dial: compile(policies, ginnel.DialPolicy),
		bind: compile(policies, ginnel.BindPolicy),
		edge: compile(policies, ginnel.EdgeRouterPolicy),
	}
}

func compile(policies []ginnel.Policy, kind ginnel.PolicyKind) table {
	t := table{policies: slices.DeleteFunc(slices.Clone(policies), func(p ginnel.Policy) bool { return p.Kind != kind })}
	slices.SortFunc(t.policies, func(a, b ginnel.Policy) int { return cmp.Compare(a.ID, b.ID) })
	var allOf []bool
	lists := make([][][]string, routerSide+1)
	for _, p := range t.policies {
		allOf = append(allOf, p.AllOf)
		for side, list := range [][]string{p.Identities, p.Services, p.Routers} {
			lists[side] = append(lists[side], list)
		}
	}
	edge := kind == ginnel.EdgeRouterPolicy
	t.sides = append(t.sides, newIndex(lists[identitySide], allOf, false), newIndex(lists[serviceSide], allOf, edge))
	if edge {
		t.sides = append(t.sides, newIndex(lists[routerSide], allOf, false))
	}
	return t
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

// EdgeRouters gives those of the routers that the identity can use for the
// service, in their order.
func (s *Set) EdgeRouters(i ginnel.Identity, sv ginnel.Service, routers []ginnel.Router) []ginnel.RouterID {
	var out []ginnel.RouterID
	for _, r := range routers {
		if s.CanUse(i, sv, r) {
			out = append(out, r.ID)
		}
	}
	return out
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
		if !t.sides[p.side].sure(i, p.entity) {
			return false
		}
	}
	return true
}
