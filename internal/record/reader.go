// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// Messages of a handshake that may come behind it.
const (
	newSessionTicket = 4
	keyUpdate        = 24
)

// maxUseless bounds the records in a row that bring no byte of the stream.
const maxUseless = 16

// Alerts.
const (
	closeNotify  = 0
	userCanceled = 90
)

// errMessage ends a stream in which something else than those comes.
var errMessage = fmt.Errorf("%w: unexpected handshake message", ErrRecord)

// Reader opens the records of a stream of bytes as they come, in pieces of any
// size, and does what those say that are not for the application.
type Reader struct {
	half    *Half
	ticket  func(rec []byte) // nil: tickets are of no interest any more
	part    []byte           // of a record whose end has not come
	useless int
	answer  bool
	err     error
}

// NewReader gives a reader of the direction of half. Ticket, which may be nil,
// takes the records, as they came, that are session tickets for crypto/tls: those
// before the first byte of the stream.
func NewReader(half *Half, ticket func(rec []byte)) *Reader {
	return &Reader{half: half, ticket: ticket}
}

// Next opens the first record of b and gives its content, which lies in b or in
// memory of the reader and is valid until the next call, and what is left of b.
// Without content nothing is left. The error is io.EOF where the other end has
// said that its stream ends; an error lasts.
//
// part is memory of at least PartSize bytes for a record whose end has not come;
// it is asked for once, and given back by Spare.
func (r *Reader) Next(b []byte, part func() []byte) (content, rest []byte, err error) {
	for len(b) > 0 && r.err == nil {
		var rec []byte
		if len(r.part) > 0 {
			if rec, b, err = r.join(b); err != nil || rec == nil {
				return nil, nil, r.fail(err)
			}
		} else {
			size, err := Size(b)
			if err != nil {
				return nil, nil, r.fail(err)
			}
			if size == 0 || size > len(b) {
				if r.part == nil {
					r.part = part()[:0]
				}
				if size > cap(r.part) {
					return nil, nil, r.fail(errTooLong)
				}
				r.part = append(r.part, b...)
				return nil, nil, nil
			}
			rec, b = b[:size], b[size:]
		}
		content, err = r.open(rec)
		if len(content) > 0 || err != nil {
			return content, b, r.fail(err)
		}
	}
	return nil, nil, r.err
}

var errTooLong = fmt.Errorf("%w: longer than a frame", ErrRecord)

// PartSize is the longest record that may come in parts.
const PartSize = 16376

// join adds to the record whose end has not come; nil: it still has not.
func (r *Reader) join(b []byte) (rec, rest []byte, err error) {
	for {
		size, err := Size(r.part)
		if err != nil {
			return nil, nil, err
		}
		if size > cap(r.part) {
			return nil, nil, errTooLong
		}
		want := max(size, HeaderSize) - len(r.part)
		n := min(want, len(b))
		r.part = append(r.part, b[:n]...)
		b = b[n:]
		if n < want {
			return nil, nil, nil
		}
		if size > 0 {
			rec, r.part = r.part, r.part[:0]
			return rec, b, nil
		}
	}
}

// Spare gives back the memory that Next was given, if none of it is in use and
// no content lies in it any more; else nil.
func (r *Reader) Spare() []byte {
	if r.part == nil || len(r.part) > 0 {
		return nil
	}
	part := r.part
	r.part = nil
	return part
}

// Drop gives back the memory whatever is in it: nothing more will be read.
func (r *Reader) Drop() []byte {
	part := r.part
	r.part = nil
	return part
}

// Asked reports, once, whether the other end asks for new keys in the other
// direction, too: before the next record there.
func (r *Reader) Asked() bool {
	asked := r.answer
	r.answer = false
	return asked
}

// Err gives why nothing more is read; nil: it goes on.
func (r *Reader) Err() error { return r.err }

func (r *Reader) fail(err error) error {
	if r.err == nil {
		r.err = err
	}
	return r.err
}

// open opens one record and does what it says; content is of the stream.
func (r *Reader) open(rec []byte) (content []byte, err error) {
	var kept []byte
	if r.ticket != nil {
		kept = append(kept, rec...)
	}
	t, content, err := r.half.Open(rec)
	if err != nil {
		return nil, err
	}
	if t == Application && len(content) > 0 {
		r.ticket, r.useless = nil, 0
		return content, nil
	}
	if r.useless++; r.useless > maxUseless {
		return nil, fmt.Errorf("%w: too many without data", ErrRecord)
	}
	switch t {
	case Application:
		return nil, nil
	case Alert:
		return nil, alert(content)
	case Handshake:
		return nil, r.handshake(content, kept)
	}
	return nil, fmt.Errorf("%w: type %d", ErrRecord, t)
}

func alert(content []byte) error {
	switch {
	case len(content) != 2:
		return fmt.Errorf("%w: alert of %d bytes", ErrRecord, len(content))
	case content[1] == closeNotify:
		return io.EOF
	case content[1] == userCanceled:
		return nil
	}
	return &net.OpError{Op: "remote error", Err: tls.AlertError(content[1])} // as crypto/tls says it
}

// handshake takes messages behind the handshake. None is cut by records here:
// those who send them write each at once.
func (r *Reader) handshake(content, rec []byte) error {
	if len(content) == 0 { // RFC 8446, section 5.1
		return errMessage
	}
	for len(content) > 0 {
		if len(content) < 4 {
			return errMessage
		}
		n := int(binary.BigEndian.Uint32(content) & 0xffffff)
		if 4+n > len(content) {
			return errMessage
		}
		switch content[0] {
		case newSessionTicket:
		case keyUpdate:
			if n != 1 || content[4] > 1 || len(content) != 5 {
				return errMessage
			}
			r.answer = r.answer || content[4] == 1
			r.ticket = nil // what follows is no business of crypto/tls
			return r.half.Update()
		default:
			return errMessage
		}
		content = content[4+n:]
	}
	if r.ticket != nil && rec != nil {
		r.ticket(rec)
	}
	return nil
}

// AppendClose appends the record that ends the stream of out.
func AppendClose(b []byte, out *Half) []byte {
	return out.Append(b, Alert, []byte{1, closeNotify})
}

// UpdateSize is the length of the record of a KeyUpdate.
const UpdateSize = HeaderSize + 5 + TailSize

// AppendUpdate appends a KeyUpdate, which does not ask for one in return, and
// renews the keys of out.
func AppendUpdate(b []byte, out *Half) ([]byte, error) {
	b = out.Append(b, Handshake, []byte{keyUpdate, 0, 0, 1, 0})
	return b, out.Update()
}

// Bound lets crypto/tls read no further than to the end of the record that it is
// in, so that behind the handshake nothing has gone into its own buffers.
// The zero value stands before a record.
type Bound struct {
	head [HeaderSize]byte
	n    int // bytes of head
	left int // of the record behind its header
}

// Most gives how many bytes may be read now.
func (b *Bound) Most() int {
	if b.left > 0 {
		return b.left
	}
	return HeaderSize - b.n
}

// Passed notes bytes that were read, at most as many as Most gave.
func (b *Bound) Passed(p []byte) {
	if b.left > 0 {
		b.left -= len(p)
		return
	}
	b.n += copy(b.head[b.n:], p)
	if b.n == HeaderSize {
		b.left, b.n = int(binary.BigEndian.Uint16(b.head[3:])), 0
	}
}
