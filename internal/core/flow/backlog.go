// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import "slices"

// Backlog is what waits in one direction of a row because the next hop's socket
// is full or its credit is spent. It keeps the two rules of the package comment:
// what must not overtake each other stands in line, the rest goes before, at most
// one of each kind; PATH_BROKEN and RESUME throw away what is made void by them.
// T is whatever the router keeps of a frame. What bounds the bytes is the Window
// of the hop that they came by. The zero value is empty; so is nil, which Put
// and Next do not take. Not safe for concurrent use.
type Backlog[T any] struct {
	line  []waiting[T]
	ahead []waiting[T]
	first int // of line; what stands before it is taken
	bytes int
}

type waiting[T any] struct {
	kind Kind
	n    int
	item T
}

// inLine says that frames of the kind keep their order.
func (k Kind) inLine() bool { return k == Start || k == Resume || k == Data || k == EOF }

// Empty reports whether nothing waits: only then may a frame go past the backlog.
func (b *Backlog[T]) Empty() bool { return b == nil || b.first == len(b.line) && len(b.ahead) == 0 }

// Bytes gives the DATA bytes that wait.
func (b *Backlog[T]) Bytes() int {
	if b == nil {
		return 0
	}
	return b.bytes
}

// Put adds a frame; n is the payload of DATA, 0 for others. drop is called for each
// frame that is thrown away, and its n bytes count as consumed. It is not needed
// where Empty and the kind is neither PathBroken nor Resume.
func (b *Backlog[T]) Put(kind Kind, n int, item T, drop func(item T, n int)) {
	w := waiting[T]{kind, n, item}
	if kind == Resume || kind == PathBroken {
		b.void(drop)
	}
	if kind.inLine() {
		b.line = append(b.line, w)
		b.bytes += n
		return
	}
	b.ahead = slices.DeleteFunc(b.ahead, func(old waiting[T]) bool {
		gone := old.kind == kind || old.kind == PathMended && kind == PathBroken
		if gone {
			drop(old.item, old.n)
		}
		return gone
	})
	b.ahead = append(b.ahead, w)
}

// Extend lets the frame that stands last in line take n more bytes, if it is
// DATA and grow takes them: many small frames need not stand one by one. It
// reports false, and nothing changes, otherwise.
func (b *Backlog[T]) Extend(n int, grow func(item T) bool) bool {
	if b == nil {
		return false
	}
	last := len(b.line) - 1
	if last < b.first || b.line[last].kind != Data || !grow(b.line[last].item) {
		return false
	}
	b.line[last].n += n
	b.bytes += n
	return true
}

// Next takes out the frame to send now, within credit; false when there is none.
func (b *Backlog[T]) Next(c *Credit) (item T, n int, ok bool) {
	if len(b.ahead) > 0 {
		w := b.ahead[0]
		b.ahead = slices.Delete(b.ahead, 0, 1)
		return w.item, 0, true
	}
	if b.first == len(b.line) || !c.Spend(b.line[b.first].n) {
		return item, 0, false
	}
	w := b.line[b.first]
	b.line[b.first] = waiting[T]{}
	b.first++
	b.bytes -= w.n
	b.compact()
	return w.item, w.n, true
}

// keepLine is how long a line may have been to be kept for the next one.
const keepLine = 64

// compact forgets what is taken out.
func (b *Backlog[T]) compact() {
	taken := b.first
	switch {
	case taken == len(b.line) && cap(b.line) > keepLine:
		b.line, b.first = nil, 0
	case taken == len(b.line), taken > keepLine && 2*taken > len(b.line):
		b.line, b.first = slices.Delete(b.line, 0, taken), 0
	}
}

// Clear throws everything away: the connection to that side is gone.
func (b *Backlog[T]) Clear(drop func(item T, n int)) {
	if b == nil {
		return
	}
	b.void(drop)
	for _, w := range b.ahead {
		drop(w.item, 0)
	}
	*b = Backlog[T]{}
}

// void throws away what stands in line.
func (b *Backlog[T]) void(drop func(item T, n int)) {
	for _, w := range b.line[b.first:] {
		drop(w.item, w.n)
	}
	clear(b.line)
	b.line, b.first, b.bytes = b.line[:0], 0, 0
}
