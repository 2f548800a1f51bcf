// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Frame takes a frame of the path of generation. Payload is not kept; what is in
// it may be written over.
func (s *Stream) Frame(generation uint32, h wire.Header, payload []byte) {
	s.FrameIn(nil, generation, h, payload)
}

// FrameIn is Frame, and what it makes due goes out with b, which the caller
// flushes before it waits for more.
func (s *Stream) FrameIn(b Batch, generation uint32, h wire.Header, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil || s.ended {
		return
	}
	s.batch = b
	defer func() { s.batch = nil }()
	now := time.Now()
	s.flow.SetRTT(s.hop.RTT())
	if err := s.take(now, generation, h, payload); err != nil {
		s.flow.Reset(ginnel.PeerReset, err.Error())
	}
	s.pump(now)
}

func (s *Stream) take(now time.Time, generation uint32, h wire.Header, payload []byte) error {
	f := s.flow
	switch h.Type {
	case wire.Data:
		if f.OnData(now, generation, len(payload)) {
			s.receive(now, payload)
		}
	case wire.Ack, wire.Credit:
		return s.count(now, generation, h, payload)
	case wire.Start:
		f.OnStart(now, generation)
	case wire.KeepAlive:
		f.OnKeepAlive(now, generation)
	case wire.PathBroken:
		f.OnPathBroken(now, generation)
	case wire.PathMended:
		f.OnPathMended(now, generation)
	case wire.ResumeAt:
		return s.resumeAt(now, generation, h.Flags, payload)
	case wire.Reset:
		code, text, err := wire.ParseReset(payload)
		if err != nil {
			return err
		}
		if code == ginnel.CodeOK { // which would end a stream as if it were whole
			code = ginnel.PeerReset
		}
		f.OnReset(now, generation, code, text)
	case wire.EOF:
		f.OnEOF(now, generation)
		wake(s.readWake)
	case wire.Control, wire.Probe: // not of a circuit
	default: // of a newer version
	}
	return nil
}

// count takes an ACK or a CREDIT.
func (s *Stream) count(now time.Time, generation uint32, h wire.Header, payload []byte) error {
	n, err := wire.ParseUint64(payload)
	if err != nil {
		return err
	}
	if h.Type == wire.Credit {
		s.flow.OnCredit(now, generation, n)
		return nil
	}
	s.flow.OnAck(now, generation, n)
	s.delivered(n)
	heard := s.eofAt != 0 && n == s.eofAt
	s.eofHeard = s.eofHeard || heard
	s.otherDone = s.otherDone || heard && h.Flags&wire.AckDone != 0
	return nil
}

// delivered notes the count, of an ACK or a RESUME, that covers our EOF.
func (s *Stream) delivered(n uint64) {
	if s.eofAt == 0 && s.flow.Delivered() {
		s.eofAt = n
	}
}

// soonEnough is how many bytes are worth waking a reader before all that is at
// hand has been looked at: two records.
const soonEnough = 2 * wire.MaxRecord

func (s *Stream) receive(now time.Time, payload []byte) {
	if s.closing {
		s.flow.Consume(now, len(payload))
		return
	}
	if s.outlet != nil {
		s.passOn(now, payload)
		return
	}
	s.inbox.Put(payload)
	if s.batch != nil && s.inbox.Len() < soonEnough {
		s.batch.Wake(s.readWake) // a reader that is woken for each record costs more than the record
		return
	}
	wake(s.readWake)
}

// resumeAt takes a RESUME; at a host it may be the first word of a newer path.
func (s *Stream) resumeAt(now time.Time, generation uint32, number uint8, payload []byte) error {
	of, received, err := wire.ParseResumeAt(payload)
	if err != nil {
		return err
	}
	if of != generation {
		return errors.New("resume of another path")
	}
	if s.next.hop != nil && generation == s.next.generation {
		_ = s.hop.Drop() // and the counts of its credit end with it
		s.hop, s.next = s.next.hop, pending{}
		s.flow.SetRTT(s.hop.RTT())
	} else if generation != s.flow.Generation() {
		return nil // late
	}
	s.flow.OnResume(now, generation, number, received)
	s.delivered(received)
	return nil
}

// NewPath gives another path to the circuit: a client uses it at once, a host
// when the client does. A generation that is not higher changes nothing and is
// ginnel.StaleGeneration.
func (s *Stream) NewPath(generation uint32, hop Hop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil || s.ended {
		return ginnel.PeerDetached
	}
	now := time.Now()
	if s.role == flow.Host {
		if generation <= max(s.flow.Generation(), s.next.generation) {
			return ginnel.StaleGeneration
		}
		s.next = pending{generation, hop}
		return nil
	}
	if err := s.flow.NewPath(now, generation); err != nil {
		return err
	}
	_ = s.hop.Drop() // and the counts of its credit end with it
	s.hop = hop
	s.flow.SetRTT(hop.RTT())
	s.pump(now)
	return nil
}

// ConnLost tells that the connection under the path of generation is gone.
func (s *Stream) ConnLost(generation uint32) {
	s.locked(func(now time.Time) { s.flow.OnConnLost(now, generation) })
}

// ConnBack tells that it was replaced, by hop, between the same two processes.
func (s *Stream) ConnBack(generation uint32, hop Hop) {
	s.locked(func(now time.Time) {
		switch {
		case generation == s.flow.Generation():
			s.hop = hop
			s.flow.SetRTT(hop.RTT())
			s.flow.OnConnBack(now, generation)
		case s.next.hop != nil && generation == s.next.generation:
			s.next.hop = hop
		}
	})
}

// pump sends what is due, moves the timer, and notes an end. The lock is held.
func (s *Stream) pump(now time.Time) {
	for {
		fr, ok := s.flow.Next(now)
		if !ok {
			break
		}
		s.send(fr)
	}
	if n := s.flow.Stalls(); n != s.stalls {
		s.stalls = n
		s.hop.Stalled()
	}
	if s.closing && !s.resting && s.flow.Delivered() && !s.flow.Done() {
		// All that was written has arrived, and nobody reads the rest.
		s.flow.Reset(ginnel.PeerReset, "closed")
		if fr, ok := s.flow.Next(now); ok {
			s.send(fr)
		}
	}
	if s.flow.Done() || s.resting && s.bothKnow() {
		s.over(now)
		return
	}
	if s.flow.Err() != nil && s.err == nil {
		s.err = s.flowErr()
		wake(s.readWake)
	}
	if s.flow.Room() > 0 || s.err != nil {
		wake(s.writeWake)
	}
	if want := s.flow.Wants(); want != s.want {
		s.want = want
		if want != flow.WantNothing && s.cfg.Wants != nil {
			go s.cfg.Wants(want)
		}
	}
	s.arm(now)
}

// send writes one frame of the flow to the hop.
func (s *Stream) send(fr flow.Frame) {
	label, b := s.hop.Label(), s.scratch[:0]
	switch fr.Kind {
	case flow.Data:
		wire.AppendHeader(fr.Raw[:0], wire.Header{Label: label, Type: wire.Data, Length: len(fr.Raw) - wire.HeaderSize})
		s.hop.Ordered(s.batch, fr.Raw)
	case flow.Start:
		s.hop.Ordered(s.batch, wire.AppendFrame(b, label, wire.Start, 0, nil))
	case flow.Resume:
		b = wire.AppendResumeAt(b, label, fr.Generation, fr.Offset)
		wire.PutFlags(b, fr.Number)
		s.unsent(fr)
		s.hop.Ordered(s.batch, b)
	case flow.EOF:
		s.eofBehind = s.saidAll
		s.hop.Ordered(s.batch, wire.AppendFrame(b, label, wire.EOF, 0, nil))
	case flow.Reset:
		s.unsent(fr)
		s.hop.Urgent(s.batch, wire.AppendReset(nil, label, fr.Code, fr.Text))
	case flow.Grant:
		s.hop.Urgent(s.batch, wire.AppendUint64Frame(b, label, wire.Credit, fr.Offset))
	case flow.Ack:
		s.saidAll, s.ackedTo = s.flow.Ended(), fr.Offset
		b = wire.AppendUint64Frame(b, label, wire.Ack, fr.Offset)
		if s.flow.Done() {
			s.saidDone = true
			wire.PutFlags(b, wire.AckDone)
		}
		s.hop.Urgent(s.batch, b)
	case flow.KeepAlive:
		s.hop.Urgent(s.batch, wire.AppendFrame(b, label, wire.KeepAlive, 0, nil))
	case flow.PathBroken:
		s.unsent(fr)
		s.hop.Urgent(s.batch, wire.AppendFrame(b, label, wire.PathBroken, 0, nil))
	case flow.PathMended: // of routers
	}
}

// unsent throws away what waits before fr, which makes it void.
func (s *Stream) unsent(fr flow.Frame) { s.flow.Unsent(fr.Generation, s.hop.Drop()) }

// arm sets the timer when it would fire too late.
func (s *Stream) arm(now time.Time) {
	at := s.flow.Deadline()
	if at.IsZero() || !s.timerAt.IsZero() && !at.Before(s.timerAt) {
		return
	}
	s.timerAt = at
	if s.timer == nil {
		s.timer = time.AfterFunc(at.Sub(now), s.tick)
		return
	}
	s.timer.Reset(at.Sub(now))
}

func (s *Stream) tick() {
	s.locked(func(now time.Time) {
		s.timerAt = time.Time{}
		s.flow.Tick(now)
	})
}
