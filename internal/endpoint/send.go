// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"net"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/socket"
	"github.com/ginnel/ginnel/internal/wire"
)

// plainAt is where the content of a record lies in a slab: a frame's header and
// the record's come before it, so that it is sealed and sent where it is.
const plainAt = flow.HeaderRoom + record.HeaderSize

// Write sends p in records that fill a frame each. It waits while the window is
// full; a write deadline that passes then leaves the connection usable.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.beginWrite(); err != nil {
		return 0, err
	}
	defer c.unlock()
	n := 0
	for n < len(p) {
		if err := c.stream.waitRoom(); err != nil {
			return n, err
		}
		slab := c.stream.lent.get()
		m := copy(slab[plainAt:plainAt+wire.MaxRecord], p[n:])
		if err := c.seal(slab, m, n+m < len(p)); err != nil {
			c.stream.flush()
			return n, c.cause(err)
		}
		n += m
	}
	return n, nil
}

// beginWrite waits until this is the one write under way; unlock ends it.
func (c *Conn) beginWrite() error {
	if err := c.stream.waitHandshake(&c.stream.writeBy); err != nil {
		return err
	}
	if err := c.lock(); err != nil {
		return err
	}
	err := c.failed
	switch {
	case err != nil:
		err = c.cause(err)
	case c.ended:
		err = net.ErrClosed
	default:
		return nil
	}
	c.unlock()
	return err
}

// seal makes a record of n bytes that lie in slab at plainAt, and sends it.
func (c *Conn) seal(slab *flow.Slab, n int, more bool) error {
	if c.out.Worn() || c.renew.Load() {
		c.renew.Store(false)
		update, err := record.AppendUpdate(nil, c.out)
		if err == nil {
			_, err = c.stream.Write(update)
		}
		if err != nil {
			c.stream.lent.put(slab)
			return err
		}
	}
	rec := slab[flow.HeaderRoom : plainAt+n+record.TailSize]
	c.out.Seal(rec, record.Application)
	return c.stream.put(slab, len(rec), more)
}

// ReadFrom sends what r gives until its end, as io.Copy does. What a TCP
// connection gives is read to where it is sealed and sent.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	in := socket.Of(r)
	if in == nil {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	if err := c.beginWrite(); err != nil {
		return 0, err
	}
	c.unlock()
	l := lender{from: &c.stream.lent}
	total := int64(0)
	for {
		if err := c.stream.waitRoom(); err != nil {
			return total, err
		}
		n, err := in.Read(&l)
		if n > 0 {
			total += int64(n)
			err = c.sendLent(&l, n)
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err != nil:
			return total, err
		}
	}
}

// sendLent sends n bytes that were read to what was lent. They cannot be read
// again, so no deadline ends it: it waits for other writes, and for room.
func (c *Conn) sendLent(l *lender, n int) error {
	c.writing <- struct{}{}
	defer c.unlock()
	if c.ended {
		l.Return()
		return net.ErrClosed
	}
	first, second := l.lent[0], l.lent[1]
	l.lent = [2]*flow.Slab{}
	rest := n - wire.MaxRecord
	if rest <= 0 {
		l.from.put(second)
	}
	if err := c.seal(first, min(n, wire.MaxRecord), rest > 0); err != nil {
		if rest > 0 {
			l.from.put(second)
		}
		c.stream.flush()
		return c.cause(err)
	}
	if rest <= 0 {
		return nil
	}
	if err := c.seal(second, rest, false); err != nil {
		return c.cause(err)
	}
	return nil
}

// lender lends the memory of two records.
type lender struct {
	from *lent
	lent [2]*flow.Slab
}

// Lend gives room for two records' content.
func (l *lender) Lend() (first, second []byte) {
	for i := range l.lent {
		l.lent[i] = l.from.get()
	}
	return l.lent[0][plainAt : plainAt+wire.MaxRecord], l.lent[1][plainAt : plainAt+wire.MaxRecord]
}

// Return hands it back.
func (l *lender) Return() {
	for i, s := range l.lent {
		l.from.put(s)
		l.lent[i] = nil
	}
}
