// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"encoding/binary"
	"sync"

	"github.com/ginnel/ginnel/internal/wire"
)

// smallHeld is the room of a frame that waits and is not long.
const smallHeld = 2 << 10

// held is the copy of a frame that waits for credit. A DATA frame grows by the
// payloads of those behind it: many small ones must not cost many times their bytes.
type held struct {
	frame []byte
}

// Pools shared by all circuits of the process.
var (
	smallFrames = sync.Pool{New: func() any { return &held{make([]byte, 0, smallHeld)} }}
	largeFrames = sync.Pool{New: func() any { return &held{make([]byte, 0, wire.MaxFrame)} }}
)

func newHeld(size int) *held {
	if size <= smallHeld {
		return smallFrames.Get().(*held)
	}
	return largeFrames.Get().(*held)
}

// hold copies a frame.
func hold(frame []byte) *held {
	h := newHeld(len(frame))
	h.frame = append(h.frame[:0], frame...)
	return h
}

// grow takes the payload of the next DATA frame, or reports false.
func (h *held) grow(payload []byte) bool {
	size := len(h.frame) + len(payload)
	if size > wire.MaxFrame {
		return false
	}
	if size > cap(h.frame) {
		larger := newHeld(size)
		larger.frame = append(larger.frame[:0], h.frame...)
		h.frame, larger.frame = larger.frame, h.frame
		larger.free()
	}
	h.frame = append(h.frame, payload...)
	binary.BigEndian.PutUint16(h.frame[6:], uint16(len(h.frame)-wire.HeaderSize))
	return true
}

// free gives the memory back.
func (h *held) free() {
	if cap(h.frame) == smallHeld {
		smallFrames.Put(h)
	} else {
		largeFrames.Put(h)
	}
}
