// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"sync"

	"github.com/ginnel/ginnel/internal/core/flow"
)

// SlabPool lends the memory of all circuits that end in a process. Its methods
// may be called from any goroutine.
type SlabPool struct{ pool sync.Pool }

// NewSlabPool gives an empty pool.
func NewSlabPool() *SlabPool {
	return &SlabPool{sync.Pool{New: func() any { return new(flow.Slab) }}}
}

// Get gives a slab.
func (s *SlabPool) Get() *flow.Slab { return s.pool.Get().(*flow.Slab) }

// Put takes a slab back.
func (s *SlabPool) Put(slab *flow.Slab) { s.pool.Put(slab) }
