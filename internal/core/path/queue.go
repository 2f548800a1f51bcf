// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import "github.com/ginnel/ginnel"

// queue is a binary heap of routers by cost. Its own lines, because
// container/heap puts every item on the garbage collector's heap.
type queue []item

type item struct {
	cost   ginnel.Cost
	router int32
}

func (q *queue) push(it item) {
	h := append(*q, it)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up].cost <= it.cost {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = it
	*q = h
}

// pop takes the item of least cost; the queue must not be empty.
func (q *queue) pop() item {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].cost < h[down].cost {
			down++
		}
		if last.cost <= h[down].cost {
			break
		}
		h[i] = h[down]
		i = down
	}
	if len(h) > 0 {
		h[i] = last
	}
	*q = h
	return top
}
