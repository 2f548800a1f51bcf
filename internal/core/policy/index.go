// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/ginnel/ginnel"
)

// bitset is a set of policies, by their number in a table. It may be shorter
// than the table where its end is empty.
type bitset []uint64

func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) remove(i int)   { b[i/64] &^= 1 << (i % 64) }
func (b bitset) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b bitset) and(c bitset) {
	for i := range b {
		b[i] &= c[i]
	}
}

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

// with gives a copy that holds i.
func (b bitset) with(i int) bitset {
	b = append(make(bitset, 0, max(len(b), words(i+1))), b...)
	b = b[:cap(b)]
	b.add(i)
	return b
}

func words(policies int) int { return (policies + 63) / 64 }

// index says which policies of a table name an entity in one of their lists.
type index struct {
	list func(ginnel.Policy) []string
	rows map[selector]row
	// doubtful policies want all of several roles. Their row is that of one of
	// the roles only, so a hit has to be looked at.
	doubtful bitset
}

// row is the set of policies that have a selector: numbers while they are
// few, bits where those take less room. It is never changed.
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

// with gives the row with policy i in it.
func (r row) with(i int) row {
	switch {
	case r.many != nil:
		return row{many: r.many.with(i)}
	case slices.Contains(r.few, uint32(i)):
		return r
	case len(r.few) < 2*words(i+1):
		return row{few: append(slices.Clone(r.few), uint32(i))}
	}
	all := make(bitset, words(int(max(slices.Max(r.few), uint32(i)))+1))
	r.or(all)
	all.add(i)
	return row{many: all}
}

// without gives the row with policy i not in it; ok is false when it is empty.
func (r row) without(i int) (less row, ok bool) {
	if r.many != nil {
		less.many = slices.Clone(r.many)
		if less.many.has(i) { // a list may say a thing twice
			less.many.remove(i)
		}
		return less, meet(less.many)
	}
	less.few = slices.DeleteFunc(slices.Clone(r.few), func(j uint32) bool { return j == uint32(i) })
	return less, len(less.few) > 0
}

// clone gives an index that can be changed while others read this one.
func (x *index) clone() *index {
	return &index{list: x.list, rows: maps.Clone(x.rows), doubtful: slices.Clone(x.doubtful)}
}

// put makes policy i, which is p, findable; not while anybody reads.
func (x *index) put(i int, p ginnel.Policy) {
	keys, doubtful := keys(x.list(p), p.AllOf)
	if doubtful {
		x.doubtful = x.doubtful.with(i)
	}
	for _, s := range keys {
		x.rows[s] = x.rows[s].with(i)
	}
}

// drop is the reverse of put.
func (x *index) drop(i int, p ginnel.Policy) {
	keys, doubtful := keys(x.list(p), p.AllOf)
	if doubtful {
		x.doubtful.remove(i)
	}
	for _, s := range keys {
		if less, ok := x.rows[s].without(i); ok {
			x.rows[s] = less
		} else {
			delete(x.rows, s)
		}
	}
}

// keys gives the selectors under which a list is found, and whether not all
// that have them are meant.
func keys(list []string, allOf bool) (keys []selector, doubtful bool) {
	var ids, roles []selector
	broken := false
	for _, text := range list {
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
	if !allOf || len(roles) == 0 {
		return append(ids, roles...), false
	}
	// Everybody has "all": it narrows nothing.
	narrow := slices.DeleteFunc(slices.Clone(roles), func(s selector) bool { return s.name == All })
	switch {
	case broken:
		return ids, false
	case len(narrow) == 0:
		return append(ids, roles[0]), false
	}
	return append(ids, narrow[0]), len(narrow) > 1
}

// find adds to set the policies that may name e: all that do, and perhaps some
// that are doubtful.
func (x *index) find(e entity, set bitset) {
	x.rows[selector{role: true, name: All}].or(set)
	x.rows[selector{name: e.id}].or(set)
	for _, role := range e.roles {
		if role != All {
			x.rows[selector{role: true, name: role}].or(set)
		}
	}
}

// sure reports whether policy i, which is p and which find has given for e,
// does name it.
func (x *index) sure(i int, p ginnel.Policy, e entity) bool {
	return !x.doubtful.has(i) || matches(x.list(p), p.AllOf, e)
}
