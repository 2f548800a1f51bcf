// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "github.com/ginnel/ginnel/internal/wire"

// latestKey tells what replaces what: a kind of frame on a circuit.
type latestKey struct {
	label uint32
	kind  wire.Type
}

type latestFrame struct {
	key        latestKey
	frame      []byte
	prev, next *latestFrame
}

// latest holds small frames that wait, one of each kind per circuit: a newer
// one replaces the older. Counts that only grow (Ack, Credit) keep the older
// one's place; of all others the order among kinds says what holds now (PathBroken,
// PathMended), so the newer one goes to the end.
type latest struct {
	byKey      map[latestKey]*latestFrame
	head, tail *latestFrame
	spare      *latestFrame // free list, by next
	made       int          // frames that are waiting or spare
}

// keepLatest is how many frames an empty latest keeps for the next ones: what a burst
// over many circuits has taken goes back.
const keepLatest = 64

// push puts in a copy of frame and reports false when there are too many.
func (l *latest) push(h wire.Header, frame []byte) bool {
	key := latestKey{h.Label, h.Type}
	f := l.byKey[key]
	switch {
	case f == nil:
		if len(l.byKey) >= maxLatest {
			return false
		}
		if f = l.spare; f != nil {
			l.spare = f.next
		} else {
			f = new(latestFrame)
			l.made++
		}
		if l.byKey == nil {
			l.byKey = make(map[latestKey]*latestFrame)
		}
		f.key = key
		l.byKey[key] = f
		l.append(f)
	case h.Type != wire.Ack && h.Type != wire.Credit:
		l.unlink(f)
		l.append(f)
	}
	f.frame = append(f.frame[:0], frame...)
	return true
}

// pop gives the first frame, valid until the next push, or nil.
func (l *latest) pop() []byte {
	f := l.head
	if f == nil {
		return nil
	}
	l.unlink(f)
	delete(l.byKey, f.key)
	f.next = l.spare
	l.spare = f
	if l.head == nil && l.made > keepLatest {
		*l = latest{}
	}
	return f.frame
}

func (l *latest) append(f *latestFrame) {
	f.prev, f.next = l.tail, nil
	if l.tail == nil {
		l.head = f
	} else {
		l.tail.next = f
	}
	l.tail = f
}

func (l *latest) unlink(f *latestFrame) {
	if f.prev == nil {
		l.head = f.next
	} else {
		f.prev.next = f.next
	}
	if f.next == nil {
		l.tail = f.prev
	} else {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
}
