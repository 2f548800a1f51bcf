// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ginnel/ginnel"
)

var (
	// ErrMalformed is why a stream is given up that holds something else than
	// datagrams.
	ErrMalformed = errors.New("the other end does not send datagrams")
	// errIdle is what those see whose Conn was closed by its idle time-out.
	errIdle = ginnel.Errorf(ginnel.IdleTimeout, "no datagram came or went for too long")
)

// Read gives the next datagram; what p has no room for is lost. io.EOF when the
// other end has closed.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	size, err := c.next()
	if err != nil {
		return 0, err
	}
	want := min(len(p), size)
	n := copy(p[:want], c.part)
	for n < want {
		m, err := c.stream.Read(p[n:want])
		if n += m; err != nil && n < want {
			c.part = append(c.part[:0], p[:n]...)
			return 0, c.readError(err, true)
		}
	}
	c.skip = size - max(n, len(c.part))
	c.have, c.part = 0, nil
	c.received.Add(1)
	c.touch()
	return n, nil
}

// Next waits until a datagram is coming and gives its size. The datagram stays
// to be read.
func (c *Conn) Next() (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.next()
}

func (c *Conn) next() (int, error) {
	if err := c.skipRest(); err != nil {
		return 0, c.readError(err, true)
	}
	for c.have < header {
		n, err := c.stream.Read(c.head[c.have:])
		if c.have += n; err != nil && c.have < header {
			return 0, c.readError(err, c.have > 0)
		}
	}
	size := int(binary.BigEndian.Uint16(c.head[:]))
	if size > MaxSize {
		return 0, fmt.Errorf("%w: length %d, at most %d", ErrMalformed, size, MaxSize)
	}
	return size, nil
}

// skipRest throws away what is left of a datagram that had no room.
func (c *Conn) skipRest() error {
	if c.skip == 0 {
		return nil
	}
	b := buffers.Get().(*room)
	defer buffers.Put(b)
	for c.skip > 0 {
		n, err := c.stream.Read(b[:min(c.skip, len(b))])
		if c.skip -= n; err != nil && c.skip > 0 {
			return err
		}
	}
	return nil
}

// readError says why there is no datagram; within: the stream ended in one.
func (c *Conn) readError(err error, within bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.closedError()
	case within && errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// room holds one datagram, and shows when one is too long.
type room [MaxSize + 1]byte

// buffers lends room to those who wait for none.
var buffers = sync.Pool{New: func() any { return new(room) }}

// Each gives every datagram that comes to take, which must not keep it, until
// the other end closes, which is no error, or take fails. It holds memory only
// while a datagram is there.
func (c *Conn) Each(take func(p []byte) error) error {
	for {
		if _, err := c.Next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		b := buffers.Get().(*room)
		n, err := c.Read(b[:])
		if err == nil {
			err = take(b[:n])
		}
		buffers.Put(b)
		if err != nil {
			return err
		}
	}
}
