// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"sync"

	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/wire"
)

// Sizes of pooled buffers, in bytes.
const (
	smallBuffer = 2 << 10
	largeBuffer = wire.MaxFrame
	// rawBuffer holds what one read takes from a socket, or the sealed records
	// that wait for it: less than a burst, then one of small frames, a full one,
	// and a key update.
	rawBuffer = 65 << 10
	// halfRecord holds the longest record, of which a part has come.
	halfRecord = record.HeaderSize + record.MaxContent + 256
)

// buffer holds whole frames, one after the other. len(b) is what is used.
type buffer struct {
	next *buffer
	b    []byte
}

// Pools of equal buffers, shared by all connections of the process.
var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, largeBuffer)} }}
	rawBuffers   = sync.Pool{New: func() any { return new([rawBuffer]byte) }}
	halves       = sync.Pool{New: func() any { return new([halfRecord]byte) }}
)

// newBuffer gives an empty buffer with room for size bytes, at most largeBuffer.
func newBuffer(size int) *buffer {
	if size <= smallBuffer {
		return smallBuffers.Get().(*buffer)
	}
	return largeBuffers.Get().(*buffer)
}

// free gives the buffer back to its pool.
func (b *buffer) free() {
	b.next = nil
	b.b = b.b[:0]
	if cap(b.b) == smallBuffer {
		smallBuffers.Put(b)
	} else {
		largeBuffers.Put(b)
	}
}

// fifo is a list of frames in buffers. Frames that fit share a buffer, so that
// many small ones neither take a buffer each nor a record each.
type fifo struct {
	head, tail *buffer
	bytes      int
}

// push copies frame to the end.
func (f *fifo) push(frame []byte) {
	f.bytes += len(frame)
	if t := f.tail; t != nil && len(t.b)+len(frame) <= cap(t.b) {
		t.b = append(t.b, frame...)
		return
	}
	size := len(frame)
	if f.head != nil {
		size = largeBuffer
	}
	b := newBuffer(size)
	b.b = append(b.b, frame...)
	if f.tail == nil {
		f.head = b
	} else {
		f.tail.next = b
	}
	f.tail = b
}

// pop takes the first buffer, or gives nil. The caller frees it.
func (f *fifo) pop() *buffer {
	b := f.head
	if b == nil {
		return nil
	}
	f.head = b.next
	if f.head == nil {
		f.tail = nil
	}
	b.next = nil
	f.bytes -= len(b.b)
	return b
}

// clear frees all.
func (f *fifo) clear() {
	for b := f.pop(); b != nil; b = f.pop() {
		b.free()
	}
}
