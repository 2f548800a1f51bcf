// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"

	"github.com/ginnel/ginnel/internal/wire"
)

// Sizes of the read buffer: an idle connection needs little; one that carries
// bulk gets room for a record behind part of another.
const (
	firstRead = 4 << 10
	fullRead  = 2 * wire.MaxFrame
)

// Receiver takes what a connection brings, on the goroutine that called Run. It
// must not wait: what it holds up is the connection.
type Receiver interface {
	// Frame takes a frame with a label. frame is the whole of it, header
	// included; it may be changed in place (PutLabel) and passed to SendData
	// with b, and is valid until Frame returns. An error ends the connection.
	Frame(b *Batch, h wire.Header, frame []byte) error
	// Message takes a request or notice; answers go to those who wait in
	// Request. An error ends the connection.
	Message(m *wire.Message) error
}

// Run reads until the connection ends, for ctx or another cause, and returns
// that. It is called once, after Handshake.
func (c *Conn) Run(ctx context.Context, rcv Receiver) error {
	stop := context.AfterFunc(ctx, func() { c.Close(context.Cause(ctx)) })
	defer stop()
	c.startPulse()
	for {
		h, frame, err := c.next()
		if err == nil {
			err = c.dispatch(rcv, h, frame)
		}
		if err != nil {
			c.Close(err)
			c.batch.Flush()
			return c.Err()
		}
	}
}

func (c *Conn) dispatch(rcv Receiver, h wire.Header, frame []byte) error {
	if h.Label != 0 {
		return rcv.Frame(&c.batch, h, frame)
	}
	if h.Type == wire.Probe {
		return c.probed(h, frame)
	}
	if h.Type != wire.Control {
		return nil // of a later version
	}
	m, err := wire.ParseMessage(frame[wire.HeaderSize:])
	if err != nil {
		return err
	}
	if m.GetReplyTo() != 0 {
		c.requests.answer(m)
		return nil
	}
	return rcv.Message(m)
}

// next gives the next frame, valid until the next call.
func (c *Conn) next() (wire.Header, []byte, error) {
	for {
		size := wire.HeaderSize
		if c.w-c.r >= size {
			h, err := wire.ParseHeader(c.in[c.r:c.w])
			if err != nil {
				return h, nil, err
			}
			size += h.Length
			if c.w-c.r >= size {
				frame := c.in[c.r : c.r+size : c.r+size]
				c.r += size
				return h, frame, nil
			}
		}
		if err := c.readMore(size); err != nil {
			return wire.Header{}, nil, err
		}
	}
}

// readMore reads into the buffer, where a frame of size bytes is to fit behind
// what is unread. A full frame that fills a record of its own lands at the
// buffer's start and is not moved.
func (c *Conn) readMore(size int) error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.in == nil {
		c.in = make([]byte, firstRead)
	}
	if size > len(c.in) {
		in := make([]byte, fullRead)
		c.w = copy(in, c.in[c.r:c.w])
		c.r, c.in = 0, in
	}
	if c.r+size > len(c.in) || c.r > 0 && len(c.in)-c.w < wire.MaxFrame {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	}
	n, err := c.tls.Read(c.in[c.w:])
	c.w += n
	if n > 0 {
		c.heard.Store(c.now())
		return nil
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("read: %w", err)
}
