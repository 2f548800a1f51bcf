// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import "github.com/ginnel/ginnel"

// Trees keeps the trees of one snapshot, each computed at its first use. One
// goroutine owns it; the snapshot and the trees that it gives may be shared.
// A changed topology is a new snapshot with new Trees.
type Trees struct {
	snapshot *Snapshot
	from     []*Tree // by router number; nil: not computed yet
}

// NewTrees gives an empty store of trees over s.
func NewTrees(s *Snapshot) *Trees {
	return &Trees{snapshot: s, from: make([]*Tree, len(s.ids))}
}

// Snapshot gives what the trees stand on.
func (ts *Trees) Snapshot() *Snapshot { return ts.snapshot }

// From gives the tree of an ingress router; nil when it is not connected. With
// exclusions the tree is computed for this question alone and not kept.
func (ts *Trees) From(id ginnel.RouterID, x Exclusions) *Tree {
	if !x.Empty() {
		return ts.snapshot.Tree(id, x)
	}
	r, ok := ts.snapshot.number[id]
	if !ok {
		return nil
	}
	if ts.from[r] == nil {
		ts.from[r] = ts.snapshot.Tree(id, Exclusions{})
	}
	return ts.from[r]
}
