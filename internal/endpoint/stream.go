// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Hop is the first hop of a path as its end sees it. No method waits for the
// network, and none keeps the frame it is given: it is written or copied.
type Hop interface {
	// Label is what frames to the next router carry.
	Label() uint32
	// Ordered sends a frame that has its place in the stream.
	Ordered(frame []byte)
	// Urgent sends a frame that may overtake those. Of each type one may wait; a
	// newer one takes its place.
	Urgent(frame []byte)
	// Drop throws away what Ordered has queued and not sent.
	Drop()
	// RTT of the connection, smoothed; 0: unknown.
	RTT() time.Duration
}

// Config is what all streams of a process share, and what one is told.
type Config struct {
	Budget *flow.Budget
	Slabs  flow.Slabs // nil: the heap
	// ResumeTimeout: how long a circuit may be without a path; 0: 60 s.
	ResumeTimeout time.Duration
	// Wants is called, on a goroutine of its own, when the end begins to want
	// something from outside. May be nil.
	Wants func(flow.Want)
	// Ended is called once, on a goroutine of its own, when nothing of the
	// stream is left: its labels and its entry in a table may go. May be nil.
	Ended func(error)
	// Circuit, for errors.
	Circuit ginnel.CircuitID
}

// closeLinger bounds how long a closed stream goes on delivering what was written.
const closeLinger = 60 * time.Second

// pending is a path that the other end has not used yet.
type pending struct {
	generation uint32
	hop        Hop
}

// Stream is the reliable byte stream that TLS runs over: a net.Conn without
// encryption. It is early, without a flow, until it is given its first path.
type Stream struct {
	cfg Config

	mu       sync.Mutex
	role     flow.Role
	flow     *flow.Flow // nil while early
	hop      Hop        // of flow's generation
	next     pending    // host: of a higher generation, until RESUME comes on it
	inbox    *flow.Inbox
	earlyIn  []byte // to be read before the inbox
	earlyOut []byte // written while early
	flight   chan struct{}
	flown    bool // flight is closed
	closing  bool // Close was called: what comes is thrown away
	ended    bool // Ended was called
	err      error
	want     flow.Want

	readWake, writeWake chan struct{} // of capacity 1
	readBy, writeBy     deadline
	timer               *time.Timer
	timerAt             time.Time
	linger              *time.Timer
	done                chan struct{}
}

func newStream(role flow.Role, cfg Config, earlyIn []byte) *Stream {
	return &Stream{
		cfg: cfg, role: role, earlyIn: earlyIn,
		inbox:  flow.NewInbox(cfg.Slabs),
		flight: make(chan struct{}), done: make(chan struct{}),
		readWake: make(chan struct{}, 1), writeWake: make(chan struct{}, 1),
		readBy: newDeadline(), writeBy: newDeadline(),
	}
}

// errEarlyEnd is what a handshake sees when its circuit never came about.
var errEarlyEnd = errors.New("circuit was not set up")

// up gives the stream its first path, with the other end's early bytes.
func (s *Stream) up(generation uint32, hop Hop, earlyIn []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	now := time.Now()
	f, err := flow.New(now, flow.Config{
		Role: s.role, Generation: generation,
		Budget: s.cfg.Budget, Slabs: s.cfg.Slabs, ResumeTimeout: s.cfg.ResumeTimeout,
	})
	if err != nil {
		return err
	}
	f.SetRTT(hop.RTT())
	s.flow, s.hop = f, hop
	s.earlyIn = append(s.earlyIn, earlyIn...)
	if len(s.earlyOut) > 0 { // more than the answer could carry
		f.Append(s.earlyOut)
		s.earlyOut = nil
	}
	s.land()
	s.pump(now)
	wake(s.readWake)
	return nil
}

// land ends the early flight.
func (s *Stream) land() {
	if !s.flown {
		s.flown = true
		close(s.flight)
	}
}

// Frame takes a frame of the path of generation. Payload is not kept.
func (s *Stream) Frame(generation uint32, h wire.Header, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil || s.ended {
		return
	}
	now := time.Now()
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
		count, err := wire.ParseUint64(payload)
		if err != nil {
			return err
		}
		if h.Type == wire.Ack {
			f.OnAck(now, generation, count)
		} else {
			f.OnCredit(now, generation, count)
		}
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
		f.OnReset(now, generation, code, text)
	case wire.EOF:
		f.OnEOF(now, generation)
		wake(s.readWake)
	case wire.Control, wire.Probe: // not of a circuit
	default: // of a newer version
	}
	return nil
}

func (s *Stream) receive(now time.Time, payload []byte) {
	if s.closing {
		s.flow.Consume(now, len(payload))
		return
	}
	s.inbox.Put(payload)
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
		s.hop.Drop()
		s.hop, s.next = s.next.hop, pending{}
	} else if generation != s.flow.Generation() {
		return nil // late
	}
	s.hop.Drop()
	s.flow.OnResume(now, generation, number, received)
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
	s.hop.Drop()
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
		if generation == s.flow.Generation() {
			s.hop = hop
		}
		s.flow.OnConnBack(now, generation)
	})
}

// Reset ends the circuit with a code that the other end hears, if it can be reached.
func (s *Stream) Reset(code ginnel.Code, text string) {
	s.mu.Lock()
	early := s.flow == nil
	s.mu.Unlock()
	if early {
		s.fail(&ginnel.DialError{Code: code, Message: text, Circuit: s.cfg.Circuit})
		return
	}
	s.locked(func(time.Time) { s.flow.Reset(code, text) })
}

// locked runs fn on a stream that has a flow and is not over.
func (s *Stream) locked(fn func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil || s.ended {
		return
	}
	now := time.Now()
	fn(now)
	s.pump(now)
}

// fail ends a stream that is early.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow != nil || s.ended {
		return
	}
	s.finish(err)
}

// Generation gives that of the path in use; 0 while early.
func (s *Stream) Generation() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil {
		return 0
	}
	return s.flow.Generation()
}

// Wants gives what the end wants from outside now.
func (s *Stream) Wants() flow.Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil || s.ended {
		return flow.WantNothing
	}
	return s.want
}

// Done is closed when nothing of the stream is left.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err gives why the circuit ended before its streams did, if it did.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Read reads what has come; io.EOF when the other end has ended its stream.
func (s *Stream) Read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n, err := s.read(p)
		past := s.readBy.past
		s.mu.Unlock()
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
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
	case s.readBy.passed():
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
			s.flow.Consume(now, n)
			s.pump(now)
		}
		return n, nil
	case s.err != nil:
		return 0, s.err
	case s.flow == nil:
		s.land() // a handshake that reads has written all it can
		return 0, nil
	case s.flow.Ended() || s.ended:
		return 0, io.EOF
	}
	return 0, nil
}

// Write appends to the stream; it waits while the window is full. The write
// deadline does not end it: half a record would end the TLS above it. Those who
// must not wait ask waitRoom first.
func (s *Stream) Write(p []byte) (int, error) {
	n := 0
	for {
		s.mu.Lock()
		m, err := s.write(p[n:])
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
	if s.err != nil {
		return 0, s.err
	}
	if s.ended {
		return 0, net.ErrClosed
	}
	if s.flow == nil {
		s.earlyOut = append(s.earlyOut, p...)
		return len(p), nil
	}
	n := s.flow.Append(p)
	if n > 0 {
		s.pump(time.Now())
	}
	return n, nil
}

// waitRoom waits until a write of up to one record would not wait, or until the
// write deadline.
func (s *Stream) waitRoom() error {
	for {
		s.mu.Lock()
		room, err := s.room()
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
	case s.closing || s.ended:
		return false, net.ErrClosed
	case s.writeBy.passed():
		return false, os.ErrDeadlineExceeded
	}
	return s.flow == nil || s.flow.Room() > 0, nil
}

// CloseWrite ends the outgoing stream behind what was written.
func (s *Stream) CloseWrite() error {
	s.locked(func(time.Time) { s.flow.CloseWrite() })
	return nil
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
	if s.closing || s.ended {
		return true
	}
	s.closing = true
	s.earlyIn = nil
	wake(s.readWake)
	wake(s.writeWake)
	if s.flow == nil {
		s.finish(errEarlyEnd)
		return true
	}
	now := time.Now()
	if n := s.inbox.Len(); n > 0 {
		s.inbox.Close()
		s.flow.Consume(now, n)
	}
	s.linger = time.AfterFunc(closeLinger, func() { s.Reset(ginnel.PeerReset, "closed") })
	s.pump(now)
	return s.flow.Room() > 0
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
	if s.closing && s.flow.Delivered() && !s.flow.Done() {
		// All that was written has arrived, and nobody reads the rest.
		s.flow.Reset(ginnel.PeerReset, "closed")
		if fr, ok := s.flow.Next(now); ok {
			s.send(fr)
		}
	}
	if s.flow.Done() {
		s.finish(s.flowErr())
		return
	}
	if s.flow.Err() != nil {
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

// flowErr gives the flow's error with the circuit's id.
func (s *Stream) flowErr() error {
	err := s.flow.Err()
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		d.Circuit = s.cfg.Circuit
		return d
	}
	return err
}

// send writes one frame of the flow to the hop.
func (s *Stream) send(fr flow.Frame) {
	label := s.hop.Label()
	if fr.Kind == flow.Data {
		wire.AppendHeader(fr.Raw[:0], wire.Header{Label: label, Type: wire.Data, Length: len(fr.Raw) - wire.HeaderSize})
		s.hop.Ordered(fr.Raw)
		return
	}
	var room [512]byte
	b := room[:0]
	switch fr.Kind {
	case flow.Start:
		s.hop.Ordered(wire.AppendFrame(b, label, wire.Start, 0, nil))
	case flow.Resume:
		b = wire.AppendResumeAt(b, label, fr.Generation, fr.Offset)
		wire.PutFlags(b, fr.Number)
		s.hop.Drop()
		s.hop.Ordered(b)
	case flow.EOF:
		s.hop.Ordered(wire.AppendFrame(b, label, wire.EOF, 0, nil))
	case flow.Reset:
		s.hop.Drop()
		s.hop.Urgent(wire.AppendReset(b, label, fr.Code, fr.Text))
	case flow.Grant:
		s.hop.Urgent(wire.AppendUint64Frame(b, label, wire.Credit, fr.Offset))
	case flow.Ack:
		s.hop.Urgent(wire.AppendUint64Frame(b, label, wire.Ack, fr.Offset))
	case flow.KeepAlive:
		s.hop.Urgent(wire.AppendFrame(b, label, wire.KeepAlive, 0, nil))
	case flow.Data: // above
	}
}

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

// finish ends the stream. What has come may still be read. The lock is held.
func (s *Stream) finish(err error) {
	if s.ended {
		return
	}
	s.ended = true
	if s.err == nil {
		s.err = err
	}
	if s.flow != nil {
		s.flow.Close()
	}
	for _, t := range []*time.Timer{s.timer, s.linger} {
		if t != nil {
			t.Stop()
		}
	}
	if s.closing {
		s.inbox.Close()
	}
	s.land()
	close(s.done)
	if s.cfg.Ended != nil {
		go s.cfg.Ended(err)
	}
}

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline sets when Read gives up.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readBy.set(t)
	wake(s.readWake)
	return nil
}

// SetWriteDeadline sets when Write gives up.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeBy.set(t)
	wake(s.writeWake)
	return nil
}

// LocalAddr names the circuit.
func (s *Stream) LocalAddr() net.Addr { return Addr(s.cfg.Circuit) }

// RemoteAddr names the circuit.
func (s *Stream) RemoteAddr() net.Addr { return Addr(s.cfg.Circuit) }

// Addr is an end of a circuit as a net.Addr.
type Addr string

// Network gives "ginnel".
func (Addr) Network() string { return "ginnel" }

// String gives the name.
func (a Addr) String() string { return string(a) }

// wake lets one waiter look again. TLS lets one goroutine read and one write at a time.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
