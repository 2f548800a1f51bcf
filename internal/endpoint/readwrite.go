// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Read reads what has come; io.EOF when the other end has ended its stream.
func (s *Stream) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n, err := s.read(p)
		past := s.readBy.past
		shaken := s.shaken
		if n == 0 && err == nil {
			s.releaseLocked()
		}
		s.mu.Unlock()
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if !shaken { // no deadline ends a handshake
			past = nil
		}
		select {
		case <-s.readWake:
		case <-past:
		case <-s.done:
		}
	}
}

func (s *Stream) read(p []byte) (int, error) {
	switch {
	case s.closing:
		return 0, net.ErrClosed
	case s.shaken && s.readBy.passed():
		return 0, os.ErrDeadlineExceeded
	case len(s.earlyIn) > 0:
		n := copy(p, s.earlyIn)
		if s.earlyIn = s.earlyIn[n:]; len(s.earlyIn) == 0 {
			s.earlyIn = nil
		}
		return n, nil
	case s.inbox.Len() > 0:
		n := s.inbox.Read(p)
		if s.flow != nil && !s.ended {
			now := time.Now()
			s.gatherLocked()
			s.flow.Consume(now, n)
			s.pump(now)
			s.batch = nil
			s.releaseLocked()
		}
		return n, nil
	case s.flow != nil && s.flow.Whole():
		return 0, io.EOF // what became of the circuit after that is for who writes
	case s.err != nil:
		return 0, s.err
	case s.ended:
		return 0, io.EOF
	case s.flow == nil:
		return 0, s.turn()
	}
	return 0, nil
}

// oldest gives the oldest bytes that have come, with the slab that they lie in, if
// they lie in one: both are the caller's from now on. It may wait for some.
func (s *Stream) oldest(wait bool) (slab *flow.Slab, b []byte, err error) {
	for {
		s.mu.Lock()
		slab, b, err = s.oldestLocked()
		past := s.readBy.past
		s.mu.Unlock()
		if b != nil || err != nil || !wait {
			return slab, b, err
		}
		select {
		case <-s.readWake:
		case <-past:
		case <-s.done:
		}
	}
}

func (s *Stream) oldestLocked() (slab *flow.Slab, b []byte, err error) {
	if len(s.earlyIn) > 0 && !s.closing && !s.readBy.passed() {
		b, s.earlyIn = s.earlyIn, nil
		return nil, b, nil
	}
	if s.inbox.Len() == 0 || s.closing || s.readBy.passed() {
		_, err = s.read(nil)
		return nil, nil, err
	}
	slab, b = s.inbox.Take()
	s.lent.came()
	if s.flow != nil && !s.ended {
		now := time.Now()
		s.gatherLocked()
		s.flow.Consume(now, len(b))
		s.pump(now)
		s.batch = nil
		s.releaseLocked()
	}
	return slab, b, nil
}

// turn ends the early flight: a handshake that reads has written all it can.
func (s *Stream) turn() error {
	if s.role == flow.Client && len(s.earlyOut) > wire.MaxEarlyOut {
		return errLongHello
	}
	s.land()
	return nil
}

// Write appends to the stream; it waits while the window is full. The write
// deadline does not end it: half a record would end the TLS above it. Those who
// must not wait ask waitRoom first.
func (s *Stream) Write(p []byte) (int, error) {
	n := 0
	for {
		s.mu.Lock()
		s.batch = s.own
		m, err := s.write(p[n:])
		s.batch = nil
		if err != nil || n+m < len(p) {
			s.stopGathering()
		} else {
			s.releaseLocked()
		}
		s.mu.Unlock()
		if n += m; n == len(p) || err != nil {
			return n, err
		}
		select {
		case <-s.writeWake:
		case <-s.done:
		}
	}
}

func (s *Stream) write(p []byte) (int, error) {
	if err := s.shut(); err != nil {
		return 0, err
	}
	switch {
	case s.flow != nil:
		n := s.flow.Append(p)
		if n > 0 {
			s.pump(time.Now())
		}
		return n, nil
	case len(s.earlyOut)+len(p) > maxEarly:
		return 0, errors.New("handshake writes more than may wait for a path")
	}
	s.earlyOut = append(s.earlyOut, p...)
	return len(p), nil
}

// gatherLocked makes what is sent next go out together, until batch is nil again.
// releaseLocked or flushLocked must follow.
func (s *Stream) gatherLocked() {
	if s.own == nil && s.cfg.NewBatch != nil {
		s.own = s.cfg.NewBatch()
	}
	s.batch = s.own
}

// releaseLocked sends what was gathered, unless more of it is to come.
func (s *Stream) releaseLocked() {
	if !s.gathers {
		s.flushLocked()
	}
}

// packBelow is the length below which a record is copied to others in one slab.
const packBelow = flow.SlabSize / 4

// put appends a record of n bytes, which lies in slab behind flow.HeaderRoom
// bytes and was lent; it is the stream's from now on. It waits as Write does. With more it
// may go out with the one behind it: the caller promises to come back, or to
// call flush.
func (s *Stream) put(slab *flow.Slab, n int, more bool) error {
	for {
		s.mu.Lock()
		s.batch = s.own
		if s.gathers = more; more {
			s.gatherLocked()
		}
		done, err := s.append(slab, n)
		s.batch = nil
		if done {
			s.releaseLocked()
		} else {
			s.stopGathering()
		}
		s.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-s.writeWake:
		case <-s.done:
		}
	}
}

// append is put without waiting; false: there is no room.
func (s *Stream) append(slab *flow.Slab, n int) (bool, error) {
	if err := s.shut(); err != nil || s.flow == nil {
		s.lent.put(slab)
		return err == nil, err
	}
	if n < packBelow {
		if s.flow.Append(slab[flow.HeaderRoom:flow.HeaderRoom+n]) == 0 {
			return false, nil
		}
		s.lent.put(slab)
	} else {
		s.lent.gone()
		if !s.flow.Adopt(slab, n) {
			s.lent.came()
			return false, nil
		}
	}
	s.pump(time.Now())
	return true, nil
}

// shut gives why nothing more may be written; nil: it may.
func (s *Stream) shut() error {
	switch {
	case s.err != nil:
		return s.err
	case s.ended || s.ending || s.resting:
		return net.ErrClosed
	}
	return nil
}

// flush sends what put has gathered.
func (s *Stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopGathering()
}

// stopGathering sends what was gathered, before a wait. From now on nothing else, such
// as the grants of a Read, is kept back for what is written next.
func (s *Stream) stopGathering() {
	s.gathers = false
	s.flushLocked()
}

func (s *Stream) flushLocked() {
	if s.own != nil {
		s.own.Flush()
	}
}

// waitRoom waits until a write of up to one record would not wait, or until the
// write deadline.
func (s *Stream) waitRoom() error {
	for {
		s.mu.Lock()
		room, err := s.room()
		if !room {
			s.stopGathering()
		}
		past := s.writeBy.past
		s.mu.Unlock()
		if err != nil || room {
			return err
		}
		select {
		case <-s.writeWake:
		case <-past:
		case <-s.done:
		}
	}
}

func (s *Stream) room() (bool, error) {
	switch {
	case s.err != nil:
		return false, s.err
	case s.ending || s.closing || s.ended || s.resting:
		return false, net.ErrClosed
	case s.writeBy.passed():
		return false, os.ErrDeadlineExceeded
	}
	return s.flow == nil || s.flow.Room() > 0, nil
}

// CloseWrite ends the outgoing stream behind what was written.
func (s *Stream) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathers = false
	defer s.flushLocked()
	if s.flow == nil || s.ended {
		return nil
	}
	s.ending = true
	s.flow.CloseWrite()
	wake(s.writeWake)
	s.gatherLocked()
	s.pump(time.Now())
	s.batch = nil
	return nil
}

// beforeEnd makes what is written next go out with the end of the stream: the
// caller promises CloseWrite.
func (s *Stream) beforeEnd() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gatherLocked()
	s.batch = nil
	s.gathers = true
}

// Close ends both streams: what was written is still delivered, within a
// minute; what comes is thrown away.
func (s *Stream) Close() error {
	s.discard()
	return s.CloseWrite()
}

// discard ends reading: what has come and what comes is thrown away, and the
// rest of the stream's life is bounded. It reports whether a write of up to one
// record would not wait.
func (s *Stream) discard() (room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return true
	}
	s.closing = true
	s.earlyIn = nil
	wake(s.readWake)
	wake(s.writeWake)
	n := s.inbox.Len()
	s.inbox.Close()
	switch {
	case s.ended || s.resting:
		return true
	case s.flow == nil:
		s.finish(errEarlyEnd)
		return true
	}
	now := time.Now()
	s.flow.Consume(now, n)
	if s.trusted { // else the limit of the handshake stays
		s.stopLimit()
		s.limit = time.AfterFunc(closeLinger, func() { s.Reset(ginnel.PeerReset, "closed") })
	}
	s.pump(now)
	return s.flow.Room() > 0 && s.cfg.Budget.Left() >= flow.SlabSize
}

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline sets when Read gives up; a handshake takes no notice of it.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy.set(t)
	return nil
}

// SetWriteDeadline sets when waitRoom gives up.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy.set(t)
	return nil
}
