// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/socket"
)

// Read reads what the other end wrote; io.EOF when it has ended its stream.
// The first Read waits for the handshake, and fails when the other end is not
// who the ticket names. It gives several records at once when they have come and
// p has room for them.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.beginRead(); err != nil {
		return 0, err
	}
	defer c.reading.Unlock()
	n := 0
	for n < len(p) {
		if len(c.plain) == 0 {
			if more, err := c.fill(n == 0); !more {
				return n, err
			}
		}
		m := copy(p[n:], c.plain)
		c.plain = c.plain[m:]
		n += m
	}
	c.release()
	return n, nil
}

// beginRead waits until this is the one Read under way; the caller unlocks reading.
func (c *Conn) beginRead() error {
	if err := c.stream.waitHandshake(&c.stream.readBy); err != nil {
		return err
	}
	c.reading.Lock()
	if c.failed != nil {
		c.reading.Unlock()
		return c.cause(c.failed)
	}
	return nil
}

// fill makes the content of the next record plain. It may wait for it; else false
// without an error says that none has come, or why, which comes again.
func (c *Conn) fill(wait bool) (bool, error) {
	for len(c.plain) == 0 {
		if err := c.open(); err != nil {
			return false, c.over(wait, err)
		}
		if len(c.plain) > 0 {
			break
		}
		c.release()
		var err error
		c.held, c.cipher, err = c.stream.oldest(wait)
		switch {
		case !wait && len(c.cipher) == 0:
			return false, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, err
		case errors.Is(err, io.EOF):
			err = io.ErrUnexpectedEOF // TLS did not say so: somebody on the way did
		}
		if err != nil {
			c.drop()
			return false, c.cause(err)
		}
	}
	return true, nil
}

// open opens the next record that was taken from the stream.
func (c *Conn) open() (err error) {
	c.plain, c.cipher, err = c.in.Next(c.cipher, c.lendPart)
	if c.in.Asked() {
		c.renew.Store(true)
	}
	return err
}

func (c *Conn) lendPart() []byte {
	c.part = c.stream.lent.get()
	return c.part[:record.PartSize:record.PartSize]
}

// over gives how the stream of records ended.
func (c *Conn) over(wait bool, err error) error {
	if !wait {
		return nil
	}
	c.drop()
	if errors.Is(err, io.EOF) {
		return c.cause(c.waitEnd())
	}
	code := ginnel.PeerReset
	if errors.Is(err, record.ErrRecord) { // somebody on the way has changed it
		code, err = ginnel.NotAuthenticated, fmt.Errorf("what came is not what the other end sent: %w", err)
	}
	c.stream.Reset(code, err.Error())
	if code == ginnel.NotAuthenticated {
		err = fmt.Errorf("%w: %w", code, err)
	}
	return err
}

// waitEnd waits, behind TLS's own end, for that of the stream, which is on its way.
// So whoever ends the other direction because this one has ended does it behind
// our last ACK, and neither end needs a rest.
func (c *Conn) waitEnd() error {
	var behind [64]byte // nothing comes: what does is no part of TLS
	for {
		if _, err := c.stream.Read(behind[:]); err != nil {
			return err
		}
	}
}

// release hands memory back whose content was read.
func (c *Conn) release() {
	if len(c.plain) > 0 {
		return
	}
	if c.in.Spare() != nil {
		c.stream.lent.put(c.part)
		c.part = nil
	}
	if c.held != nil && len(c.cipher) == 0 {
		c.stream.lent.put(c.held)
		c.held = nil
	}
}

// drop hands all memory back: nothing more is read.
func (c *Conn) drop() {
	c.plain, c.cipher = nil, nil
	if c.in.Drop() != nil {
		c.stream.lent.put(c.part)
		c.part = nil
	}
	c.release()
}

// WriteTo writes what comes to w until its end, as io.Copy does. To a TCP
// connection it is written on the goroutine that brings it, in the memory in which
// it came, while the connection takes it; while it does not, by the caller.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	if err := c.beginRead(); err != nil {
		return 0, err
	}
	defer c.reading.Unlock()
	o := &outlet{c: c, to: socket.Of(w)}
	wait := o.to == nil
	for {
		more, err := c.fill(wait)
		switch {
		case more:
			err := o.write(w, c.plain)
			c.plain = nil
			if err != nil {
				return o.passed, err
			}
		case errors.Is(err, io.EOF):
			return o.passed, nil
		case err != nil:
			return o.passed, err
		default:
			wait = c.stream.through(o)
			if o.failed != nil {
				return o.passed, o.failed
			}
		}
	}
}

// outlet is where what comes goes at once. Under the lock of the stream.
type outlet struct {
	c      *Conn
	to     *socket.Socket
	passed int64
	failed error // of the socket
}

// write writes p to w: what the socket takes at once without telling the scheduler,
// and the rest as it comes.
func (o *outlet) write(w io.Writer, p []byte) error {
	if o.to != nil {
		n, err := o.to.TryWrite(p)
		o.passed += int64(n)
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
	n, err := w.Write(p)
	o.passed += int64(n)
	return err
}

// pass opens the records of b and writes what is in them. What cannot be written
// at once becomes the Conn's plain; what comes behind that is left.
func (o *outlet) pass(b []byte) (left []byte, ok bool) {
	c := o.c
	c.cipher = b
	for len(c.cipher) > 0 {
		if err := c.open(); err != nil {
			break // and stays
		}
		if len(c.plain) == 0 {
			continue
		}
		n, err := o.to.TryWrite(c.plain)
		o.passed += int64(n)
		if n == len(c.plain) {
			c.plain = nil
			continue
		}
		o.failed = err
		slab := c.stream.lent.get()
		left, c.cipher = c.cipher, nil
		c.plain = slab[:copy(slab[:], c.plain[n:])]
		c.held = slab
		return left, false
	}
	c.cipher = nil
	c.release()
	return nil, c.in.Err() == nil
}

// passOn gives DATA to the outlet, in its place in the stream. The lock is held.
func (s *Stream) passOn(now time.Time, payload []byte) {
	left, ok := s.outlet.pass(payload)
	s.flow.Consume(now, len(payload)-len(left))
	if len(left) > 0 {
		s.inbox.Put(left)
	}
	if !ok {
		s.outlet = nil
		wake(s.readWake)
	}
}

// through lets what comes go to o, until that takes no more, or something came
// before it could: then it is false. True: the stream is at its end.
func (s *Stream) through(o *outlet) (end bool) {
	c := o.c
	for {
		s.mu.Lock()
		s.outlet = nil
		_, err := s.read(nil)
		end := err != nil || c.in.Err() != nil
		idle := !end && o.failed == nil && len(c.plain) == 0 && len(s.earlyIn) == 0 && s.inbox.Len() == 0
		if idle {
			s.outlet = o
		}
		past := s.readBy.past
		s.mu.Unlock()
		if !idle {
			return end
		}
		select {
		case <-s.readWake:
		case <-past:
		case <-s.done:
		}
	}
}
