// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"

	"github.com/ginnel/ginnel/internal/wire"
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
			c.got(frame)
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

// next gives the next frame, valid until the next call. It lies in the memory that
// it was read to, unless several records hold it.
func (c *Conn) next() (wire.Header, []byte, error) {
	if len(c.part) == 0 && cap(c.part) > 0 { // the last one lay there
		c.part = nil
	}
	for {
		from := &c.plain
		if len(c.part) > 0 {
			if err := c.join(); err != nil {
				return wire.Header{}, nil, err
			}
			from = &c.part
		}
		if h, size, err := whole(*from); err != nil || size > 0 {
			frame := (*from)[:size:size]
			*from = (*from)[size:]
			return h, frame, err
		}
		if len(c.part) == 0 {
			c.part = append(c.part, c.plain...)
		}
		c.plain = nil
		if err := c.readMore(); err != nil {
			return wire.Header{}, nil, err
		}
	}
}

// whole gives the header of the frame that b begins with and its size; 0: its end
// is not in b.
func whole(b []byte) (h wire.Header, size int, err error) {
	if len(b) < wire.HeaderSize {
		return h, 0, nil
	}
	h, err = wire.ParseHeader(b)
	if err != nil || len(b) < wire.HeaderSize+h.Length {
		return h, 0, err
	}
	return h, wire.HeaderSize + h.Length, nil
}

// join adds to the frame whose end has not come, and no more.
func (c *Conn) join() error {
	for {
		want := wire.HeaderSize
		if len(c.part) >= want {
			h, err := wire.ParseHeader(c.part)
			if err != nil {
				return err
			}
			want += h.Length
		}
		n := min(want-len(c.part), len(c.plain))
		if n == 0 {
			return nil
		}
		c.part = append(c.part, c.plain[:n]...)
		c.plain = c.plain[n:]
	}
}

// readMore opens the next record.
func (c *Conn) readMore() error {
	for len(c.plain) == 0 {
		if len(c.read) == 0 {
			c.sparePart()
			read, err := c.raw.fill()
			if err != nil {
				return fmt.Errorf("read: %w", err)
			}
			c.read = read
			c.heard.Store(c.now())
		}
		if c.in == nil {
			c.plain, c.read = c.read, nil
			continue
		}
		var err error
		c.plain, c.read, err = c.in.Next(c.read, c.lendPart)
		if c.in.Asked() {
			c.renew.Store(true)
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
	}
	return nil
}

// lendPart gives memory for a record of which only a part has come.
func (c *Conn) lendPart() []byte {
	c.half = halves.Get().(*[halfRecord]byte)
	return c.half[:]
}

// sparePart takes it back while there is no such record.
func (c *Conn) sparePart() {
	if c.in != nil && c.in.Spare() != nil {
		halves.Put(c.half)
		c.half = nil
	}
}
