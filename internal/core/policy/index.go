// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/bits"
	"slices"
)

// bitset is a set of policies, by their number in a table.
type bitset []uint64

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

func (b bitset) and(c bitset) {
	for i := range b {
		b[i] &= c[i]
	}
}

// index says which policies of a table name an entity in one of their lists.
type index struct {
	lists [][]string // of each policy
	allOf []bool
	rows  map[selector]row
	// doubtful policies want all of several roles. Their row is that of one of
	// the roles only, so a hit has to be looked at.
	doubtful bitset
}

// row is the set of policies that have a selector: numbers while they are
// few, bits where those take less room.
type row struct {
	few  []uint32
	many bitset
}

// or adds the row to a set.
func (r row) or(to bitset) {
	for _, i := range r.few {
		to.add(int(i))
	}
	for i, word := range r.many {
		to[i] |= word
	}
}

// newIndex indexes one list of each policy; an empty list matches everything
// where emptyIsAll.
func newIndex(lists [][]string, allOf []bool, emptyIsAll bool) *index {
	x := &index{lists: slices.Clone(lists), allOf: allOf, doubtful: make(bitset, words(len(lists)))}
	found := make(map[selector][]uint32)
	for i, list := range lists {
		if len(list) == 0 && emptyIsAll {
			x.lists[i] = []string{"#" + allRole}
		}
		for _, s := range x.keys(i) {
			if at := found[s]; len(at) == 0 || at[len(at)-1] != uint32(i) {
				found[s] = append(at, uint32(i))
			}
		}
	}
	x.rows = make(map[selector]row, len(found))
	for s, at := range found {
		if len(at) <= 2*len(x.doubtful) {
			x.rows[s] = row{few: at}
			continue
		}
		many := make(bitset, len(x.doubtful))
		for _, i := range at {
			many.add(int(i))
		}
		x.rows[s] = row{many: many}
	}
	return x
}

// keys gives the selectors under which policy i is found.
func (x *index) keys(i int) []selector {
	var ids, roles []selector
	broken := false
	for _, text := range x.lists[i] {
		s, err := parse(text)
		switch {
		case err != nil:
			broken = true
		case s.role:
			roles = append(roles, s)
		default:
			ids = append(ids, s)
		}
	}
	if !x.allOf[i] || len(roles) == 0 {
		return append(ids, roles...)
	}
	// Everybody has "all": it narrows nothing.
	narrow := slices.DeleteFunc(slices.Clone(roles), func(s selector) bool { return s.name == allRole })
	switch {
	case broken:
		return ids
	case len(narrow) == 0:
		return append(ids, roles[0])
	case len(narrow) > 1:
		x.doubtful.add(i)
	}
	return append(ids, narrow[0])
}

// find adds to set the policies that may name e: all that do, and perhaps some
// that are doubtful.
func (x *index) find(e entity, set bitset) {
	x.rows[selector{role: true, name: allRole}].or(set)
	x.rows[selector{name: e.id}].or(set)
	for _, role := range e.roles {
		if role != allRole {
			x.rows[selector{role: true, name: role}].or(set)
		}
	}
}

// sure reports whether policy i, which find has given for e, does name it.
func (x *index) sure(i int, e entity) bool {
	return x.doubtful[i/64]&(1<<(i%64)) == 0 || matches(x.lists[i], x.allOf[i], e)
}

func words(policies int) int { return (policies + 63) / 64 }

// each gives the members of the set in ascending order until yield says no.
func (b bitset) each(yield func(int) bool) {
	for w, word := range b {
		for ; word != 0; word &= word - 1 {
			if !yield(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
