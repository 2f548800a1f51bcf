// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"time"

	"github.com/ginnel/ginnel"
)

// heard notes a frame of a generation and tells whether it is the current one.
func (f *Flow) heard(now time.Time, generation uint32) bool {
	if generation != f.generation || f.state == closed {
		return false
	}
	f.heardAt = now
	return true
}

// broke ends the circuit because the peer broke the rules of the protocol.
func (f *Flow) broke(text string) { f.Reset(ginnel.PeerReset, text) }

// OnStart takes a START frame. It counts even where the path broke and was mended
// before the client knew of the path, and so has no RESUME to send.
func (f *Flow) OnStart(now time.Time, generation uint32) {
	if f.heard(now, generation) && f.cfg.Role == Host && !f.started {
		f.started = true
		f.enterReady()
	}
}

// OnData takes a DATA frame of n bytes. When take is true the bytes are next in
// the stream: the caller keeps them until they are read, and then calls Consume.
// Otherwise they are to be thrown away; the path was broken and they will come again.
func (f *Flow) OnData(now time.Time, generation uint32, n int) (take bool) {
	if !f.heard(now, generation) {
		return false
	}
	if f.resting {
		f.broke("data behind the end of the stream")
		return false
	}
	if !f.window.Receive(n) {
		f.broke("more data than credit")
		return false
	}
	if f.state != ready || f.due&dueReset != 0 {
		f.spend(now, n)
		return false
	}
	if f.eofIn {
		f.broke("data behind the end of the stream")
		return false
	}
	f.received += uint64(n)
	if f.received-f.consumed > uint64(f.cfg.MaxRetained+f.cfg.MaxWindow) {
		f.broke("more data than may be unacknowledged")
		return false
	}
	return true
}

// spend counts bytes of this hop that take no room any more.
func (f *Flow) spend(now time.Time, n int) {
	if limit, send := f.window.Consume(now, n, f.rtt); send {
		f.limit = limit
		f.due |= dueGrant
	}
}

// Consume tells that n bytes which OnData took have been read and their memory
// is free.
func (f *Flow) Consume(now time.Time, n int) {
	if f.state == closed {
		return
	}
	f.consumed += uint64(n)
	if f.consumed > f.received {
		panic("BUG: more bytes consumed than received")
	}
	f.spend(now, n)
	f.takeEOF()
	f.oweAck(now)
}

// takeEOF consumes the end of the stream when it is all that is left.
func (f *Flow) takeEOF() {
	if f.eofIn && f.consumed+1 == f.received {
		f.consumed = f.received
	}
}

// oweAck makes an ACK due, at once or soon.
func (f *Flow) oweAck(now time.Time) {
	switch owed := f.consumed - f.acked; {
	case owed == 0 || f.due&dueReset != 0:
	case owed >= ackEvery || f.Ended():
		f.due |= dueAck
	case f.ackAt.IsZero():
		f.ackAt = now.Add(ackDelay)
	}
}

// OnEOF takes an EOF frame; Ended tells when it is the reader's turn to know.
func (f *Flow) OnEOF(now time.Time, generation uint32) {
	if !f.heard(now, generation) || f.state != ready {
		return
	}
	if f.eofIn {
		f.broke("two ends of one stream")
		return
	}
	f.eofIn = true
	f.received++
	f.takeEOF()
	f.oweAck(now)
}

// OnAck takes an ACK frame.
func (f *Flow) OnAck(now time.Time, generation uint32, offset uint64) {
	if !f.heard(now, generation) || f.state == silent {
		return
	}
	if !f.acknowledge(offset) {
		f.broke("acknowledgement of bytes never sent")
		return
	}
	f.read = max(f.read, min(offset, f.out.end))
}

// acknowledge frees what the other end has; false when it claims too much.
func (f *Flow) acknowledge(offset uint64) bool {
	if f.eofEver && offset == f.out.end+1 {
		f.eofAck = true
		offset--
	}
	if offset > f.out.fresh {
		return false
	}
	if offset > f.out.base {
		f.out.ack(offset)
	}
	return true
}

// OnCredit takes a CREDIT frame.
func (f *Flow) OnCredit(now time.Time, generation uint32, limit uint64) {
	if f.heard(now, generation) {
		f.credit.Raise(limit)
	}
}

// OnKeepAlive takes a KEEPALIVE frame.
func (f *Flow) OnKeepAlive(now time.Time, generation uint32) { f.heard(now, generation) }

// OnReset takes a RESET frame; Err tells the code then. A circuit whose streams
// had both ended has nothing to lose and ends without an error.
func (f *Flow) OnReset(now time.Time, generation uint32, code ginnel.Code, text string) {
	if !f.heard(now, generation) {
		return
	}
	over := f.Ended() && f.eofEver && f.out.base == f.out.end
	if f.code == ginnel.CodeOK && !over {
		f.code, f.text = code, text
	}
	f.Close()
}
