// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

// Inbox keeps bytes that OnData took until their reader comes. What bounds it is
// the Window of the Flow that the bytes came by, and their budget is that
// window's. The zero value takes memory from the heap. Not safe for concurrent use.
type Inbox struct {
	slabs Slabs
	queue []*Slab // oldest first
	spare *Slab
	read  int // bytes read of the oldest
	wrote int // bytes written of the newest
	size  int
}

// NewInbox gives an inbox that takes its memory from slabs; nil: the heap.
func NewInbox(slabs Slabs) *Inbox { return &Inbox{slabs: slabs} }

// Len gives the bytes that wait.
func (b *Inbox) Len() int { return b.size }

// Put copies p behind what waits.
func (b *Inbox) Put(p []byte) {
	b.size += len(p)
	for len(p) > 0 {
		if len(b.queue) == 0 || b.wrote == SlabSize {
			b.queue = append(b.queue, b.get())
			b.wrote = 0
		}
		n := copy(b.queue[len(b.queue)-1][b.wrote:], p)
		b.wrote += n
		p = p[n:]
	}
}

// Read copies the oldest bytes to p and gives how many; then Consume of the Flow
// is due for them. It gives 0 when nothing waits.
func (b *Inbox) Read(p []byte) (n int) {
	for n < len(p) && b.size > 0 {
		last := SlabSize
		if len(b.queue) == 1 {
			last = b.wrote
		}
		m := copy(p[n:], b.queue[0][b.read:last])
		n, b.read, b.size = n+m, b.read+m, b.size-m
		if b.read == SlabSize || b.size == 0 {
			b.pop()
		}
	}
	return n
}

// Close throws away what waits and hands back the memory.
func (b *Inbox) Close() {
	for len(b.queue) > 0 {
		b.pop()
	}
	if b.spare != nil && b.slabs != nil {
		b.slabs.Put(b.spare)
	}
	b.spare, b.size = nil, 0
}

func (b *Inbox) get() *Slab {
	if s := b.spare; s != nil {
		b.spare = nil
		return s
	}
	if b.slabs == nil {
		b.slabs = heap{}
	}
	return b.slabs.Get()
}

// pop frees the oldest slab, of which one is kept while bytes wait.
func (b *Inbox) pop() {
	s := b.queue[0]
	n := copy(b.queue, b.queue[1:])
	b.queue[n] = nil
	b.queue, b.read = b.queue[:n], 0
	if b.spare == nil && n > 0 {
		b.spare = s
		return
	}
	b.slabs.Put(s)
}
