// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

// Inbox keeps bytes that OnData took until their reader comes. What bounds it is
// the Window of the Flow that the bytes came by, and their budget is that
// window's. The zero value takes memory from the heap. Not safe for concurrent use.
type Inbox struct {
	slabs Slabs
	queue []unread // oldest first
	spare *Slab
	size  int
}

// unread is a slab of which the bytes from read to wrote wait.
type unread struct {
	slab        *Slab
	read, wrote int
}

// NewInbox gives an inbox that takes its memory from slabs; nil: the heap.
func NewInbox(slabs Slabs) *Inbox { return &Inbox{slabs: slabs} }

// Len gives the bytes that wait.
func (b *Inbox) Len() int { return b.size }

// Put copies p, the payload of a frame, behind what waits. It stays in one piece.
func (b *Inbox) Put(p []byte) {
	b.size += len(p)
	for len(p) > 0 {
		n := len(b.queue)
		if n == 0 || SlabSize-b.queue[n-1].wrote < min(len(p), SlabSize) {
			b.queue = append(b.queue, unread{slab: b.get()})
			n++
		}
		last := &b.queue[n-1]
		m := copy(last.slab[last.wrote:], p)
		last.wrote += m
		p = p[m:]
	}
}

// Read copies the oldest bytes to p and gives how many; then Consume of the Flow
// is due for them. It gives 0 when nothing waits.
func (b *Inbox) Read(p []byte) (n int) {
	for n < len(p) && b.size > 0 {
		first := &b.queue[0]
		m := copy(p[n:], first.slab[first.read:first.wrote])
		n, b.size = n+m, b.size-m
		if first.read += m; first.read == first.wrote {
			b.free(b.pop())
		}
	}
	return n
}

// Take gives the oldest bytes that wait, in the slab in which they came, which is
// the caller's from now on; Consume of the Flow is due for them. Nil: nothing waits.
func (b *Inbox) Take() (*Slab, []byte) {
	if b.size == 0 {
		return nil, nil
	}
	first := b.queue[0]
	b.size -= first.wrote - first.read
	return b.pop(), first.slab[first.read:first.wrote]
}

// Close throws away what waits and hands back the memory.
func (b *Inbox) Close() {
	for len(b.queue) > 0 {
		b.slabs.Put(b.pop())
	}
	if b.spare != nil && b.slabs != nil {
		b.slabs.Put(b.spare)
	}
	b.spare, b.size, b.queue = nil, 0, nil
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

// pop takes the oldest slab out.
func (b *Inbox) pop() *Slab {
	s := b.queue[0].slab
	n := copy(b.queue, b.queue[1:])
	b.queue[n] = unread{}
	b.queue = b.queue[:n]
	return s
}

// free hands a slab back, but for one that is kept while bytes wait.
func (b *Inbox) free(s *Slab) {
	if b.spare == nil && b.size > 0 {
		b.spare = s
		return
	}
	b.slabs.Put(s)
}
