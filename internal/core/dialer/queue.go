// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

// queue is a heap of entries with four children to a node, earliest first;
// equal instants in the order in which they were put in. An entry stands in at
// most one queue and at most once, at entry.pos. What is compared lies in the
// queue itself: a million entries are not touched to move one.
type queue []place

type place struct {
	due instant
	seq uint64
	e   *entry
}

func (p place) before(o place) bool {
	return p.due < o.due || p.due == o.due && p.seq < o.seq
}

// put inserts e, or moves it if it stands in q already.
func (q *queue) put(e *entry, due instant, seq uint64) {
	p := place{due, seq, e}
	if e.pos == notQueued {
		*q = append(*q, p)
		q.up(len(*q)-1, p)
		return
	}
	q.settle(int(e.pos), p)
}

// remove takes e out; it must stand in q.
func (q *queue) remove(e *entry) {
	i, last := int(e.pos), len(*q)-1
	moved := (*q)[last]
	(*q)[last] = place{}
	*q = (*q)[:last]
	if i < last {
		q.settle(i, moved)
	}
	e.pos = notQueued
}

// settle puts p at i or where it belongs from there.
func (q *queue) settle(i int, p place) {
	if i > 0 && p.before((*q)[(i-1)/4]) {
		q.up(i, p)
	} else {
		q.down(i, p)
	}
}

func (q *queue) up(i int, p place) {
	h := *q
	for i > 0 {
		parent := (i - 1) / 4
		if !p.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		h[i].e.pos = int32(i)
		i = parent
	}
	h[i] = p
	p.e.pos = int32(i)
}

func (q *queue) down(i int, p place) {
	h := *q
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(p) {
			break
		}
		h[i] = h[least]
		h[i].e.pos = int32(i)
		i = least
	}
	h[i] = p
	p.e.pos = int32(i)
}
