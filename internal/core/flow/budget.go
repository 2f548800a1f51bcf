// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"sync/atomic" //nolint:depguard // circuits on several goroutines share the one counter; it decides nothing
)

// Budget bounds the bytes that all circuits of a process may have buffered or
// promised to buffer. It is safe for concurrent use. The zero value is empty.
type Budget struct {
	left atomic.Int64
}

// NewBudget gives a budget of n bytes.
func NewBudget(n int64) *Budget {
	b := new(Budget)
	b.left.Store(n)
	return b
}

// Take takes n bytes, or reports false and takes nothing when fewer are left.
func (b *Budget) Take(n int) bool {
	if b.left.Add(-int64(n)) >= 0 {
		return true
	}
	b.left.Add(int64(n))
	return false
}

// Give returns n bytes that were taken.
func (b *Budget) Give(n int) { b.left.Add(int64(n)) }

// Left gives the bytes that may still be taken; negative while what was promised
// earlier exceeds the budget.
func (b *Budget) Left() int64 { return b.left.Load() }

// Hold takes n bytes that are in use already, even beyond the end.
func (b *Budget) Hold(n int) { b.left.Add(-int64(n)) }
