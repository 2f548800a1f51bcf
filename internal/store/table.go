// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"iter"

	"k8s.io/utils/third_party/forked/golang/btree"
)

// degree of the trees: wide enough to be compact, narrow enough that copying a
// path for a change costs little.
const degree = 16

// entry is a record in a view.
type entry struct {
	id     string
	rev    Revision
	record any
	kept   fields // from a newer version; mostly nil
}

// tree is an ordered set of entries. clone gives one that shares all nodes
// until either is written to, so a published tree is never written to again.
type tree = btree.BTree[entry]

func newTree() *tree {
	return btree.New(degree, func(a, b entry) bool { return a.id < b.id })
}

// ref is an entry of a secondary index: child refers to parent.
type ref struct{ parent, child string }

type refTree = btree.BTree[ref]

func newRefTree() *refTree {
	return btree.New(degree, func(a, b ref) bool {
		return a.parent < b.parent || a.parent == b.parent && a.child < b.child
	})
}

// Row is a record with the revision of its last write.
type Row[R any] struct {
	Record   R
	Revision Revision
}

// Table gives the records of one kind in a View.
type Table[R any, I ~string] struct{ rows *tree }

// Get gives the record of an id; ok is false if there is none.
func (t Table[R, I]) Get(id I) (record R, ok bool) {
	row, ok := t.Row(id)
	return row.Record, ok
}

// Row is Get with the record's revision.
func (t Table[R, I]) Row(id I) (row Row[R], ok bool) {
	e, ok := t.rows.Get(entry{id: string(id)})
	if !ok {
		return row, false
	}
	return Row[R]{Record: e.record.(R), Revision: e.rev}, true
}

// Len gives the number of records.
func (t Table[R, I]) Len() int { return t.rows.Len() }

// Page gives at most limit records with ids after one, in bytewise order of
// ids. The empty id comes before all.
func (t Table[R, I]) Page(after I, limit int) []Row[R] {
	var page []Row[R]
	t.rows.AscendGreaterOrEqual(entry{id: string(after)}, func(e entry) bool {
		if len(page) >= limit {
			return false
		}
		if e.id > string(after) {
			page = append(page, Row[R]{Record: e.record.(R), Revision: e.rev})
		}
		return true
	})
	return page
}

// Rows gives every record with its revision, in bytewise order of ids.
func (t Table[R, I]) Rows() iter.Seq[Row[R]] {
	return func(yield func(Row[R]) bool) {
		t.rows.Ascend(func(e entry) bool { return yield(Row[R]{Record: e.record.(R), Revision: e.rev}) })
	}
}

// All gives every record, in bytewise order of ids.
func (t Table[R, I]) All() iter.Seq[R] {
	return func(yield func(R) bool) {
		t.rows.Ascend(func(e entry) bool { return yield(e.record.(R)) })
	}
}
