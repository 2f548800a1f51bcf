// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

// queue is a heap of entries with fanOut children to a node, earliest first;
// equal instants in the order in which they were put in. An entry stands in at
// most one queue and at most once, at entry.pos. What is compared lies in the
// queue itself, so entries are not read to move one. It grows by blocks: no step
// has to copy a million places.
type queue struct {
	blocks []*block
	len    int
}

// blockLen is a power of two.
const blockLen = 1024

// fanOut: the places of a node's children lie beside each other, and each level
// that a place moves costs a look at another entry, so few levels are better.
const fanOut = 8

type block [blockLen]place

type place struct {
	due instant
	seq uint64
	e   *entry
}

func (p *place) before(o *place) bool {
	return p.due < o.due || p.due == o.due && p.seq < o.seq
}

// at gives the place with this index; 0 is the earliest.
func (q *queue) at(i int) *place {
	return &q.blocks[uint(i)/blockLen][uint(i)%blockLen]
}

// put inserts e, or moves it if it stands in q already.
func (q *queue) put(e *entry, due instant, seq uint64) {
	p := place{due, seq, e}
	if e.pos != notQueued {
		q.settle(int(e.pos), p)
		return
	}
	if q.len == len(q.blocks)*blockLen {
		q.blocks = append(q.blocks, new(block))
	}
	q.len++
	q.up(q.len-1, p)
}

// remove takes e out; it must stand in q.
func (q *queue) remove(e *entry) {
	q.len--
	i, last := int(e.pos), q.at(q.len)
	moved := *last
	*last = place{}
	if i < q.len {
		q.settle(i, moved)
	}
	e.pos = notQueued
	if spare := len(q.blocks) - 1; q.len < (spare-1)*blockLen {
		q.blocks[spare] = nil
		q.blocks = q.blocks[:spare]
	}
}

// settle puts p at i or where it belongs from there.
func (q *queue) settle(i int, p place) {
	if i > 0 && p.before(q.at((i-1)/fanOut)) {
		q.up(i, p)
	} else {
		q.down(i, p)
	}
}

func (q *queue) up(i int, p place) {
	for i > 0 {
		parent := (i - 1) / fanOut
		if !p.before(q.at(parent)) {
			break
		}
		q.set(i, *q.at(parent))
		i = parent
	}
	q.set(i, p)
}

func (q *queue) down(i int, p place) {
	for {
		first := fanOut*i + 1
		if first >= q.len {
			break
		}
		least := first
		for c := first + 1; c < min(first+fanOut, q.len); c++ {
			if q.at(c).before(q.at(least)) {
				least = c
			}
		}
		if !q.at(least).before(&p) {
			break
		}
		q.set(i, *q.at(least))
		i = least
	}
	q.set(i, p)
}

func (q *queue) set(i int, p place) {
	*q.at(i) = p
	p.e.pos = int32(i)
}
