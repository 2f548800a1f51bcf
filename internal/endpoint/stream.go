// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// Hop is the first hop of a path as its end sees it. No method waits for the
// network, and none keeps the frame it is given: it is written or copied. They
// are called under the stream's lock, so they must not call the stream.
type Hop interface {
	// Label is what frames to the next router carry.
	Label() uint32
	// Ordered sends a frame that has its place in the stream, at once or with b;
	// b may be nil.
	Ordered(b Batch, frame []byte)
	// Urgent sends a frame that may overtake those. Of each type one may wait; a
	// newer one takes its place.
	Urgent(b Batch, frame []byte)
	// Drop throws away what Ordered has queued and not sent, and gives the bytes of
	// DATA in it.
	Drop() int
	// Stalled tells that what is to be sent has begun to wait for credit.
	Stalled()
	// RTT of the connection, without queues on it; 0: unknown.
	RTT() time.Duration
}

// Batch gathers frames, so that several go out in one write. What kind it is
// only hops know and those who bring it.
type Batch interface {
	// Flush writes what was gathered. It does not wait for the network.
	Flush()
	// Wake sends to c, which has room for one, when it is flushed, unless that is full.
	Wake(c chan struct{})
}

// Config is what all streams of a process share, and what one is told.
type Config struct {
	Budget *flow.Budget
	Slabs  flow.Slabs // of which Get and Put may be called from any goroutine; nil: a pool of its own
	// ResumeTimeout: how long a circuit may be without a path; 0: 60 s.
	ResumeTimeout time.Duration
	// Wants is called, on a goroutine of its own, when the end begins to want
	// something from outside: at most every 200 ms, and for a client again 3 s
	// after a new path that did not help. May be nil.
	Wants func(flow.Want)
	// Ended is called once, on a goroutine of its own, when nothing of the
	// stream is left: its labels and its entry in a table may go. May be nil.
	Ended func(error)
	// Circuit, for errors.
	Circuit ginnel.CircuitID
	// NewBatch makes the Batch for the records of one large Write. nil: each goes
	// out by itself.
	NewBatch func() Batch
	// Handshakes counts this one too; nil: nobody does.
	Handshakes *Handshakes
}

// Times and bounds of a stream.
const (
	// closeLinger bounds how long a closed stream goes on delivering what was written.
	closeLinger = 60 * time.Second
	// rest is how long a stream that is done stays to answer the RESUME of an
	// other end that lost the last ACK: the time in which a silent link is
	// noticed, and some to find another path.
	rest = 10 * time.Second
	// handshakeTimeout bounds a handshake: a host's from the client's first
	// flight on, a client's from the host's.
	handshakeTimeout = 10 * time.Second
	// maxEarly bounds what a handshake may write before there is a path.
	maxEarly = 64 << 10
)

// errEarlyEnd is what a handshake sees when its circuit never came about.
var errEarlyEnd = errors.New("circuit was not set up")

// pending is a path that the other end has not used yet.
type pending struct {
	generation uint32
	hop        Hop
}

// Stream is the reliable byte stream that TLS runs over: a net.Conn without
// encryption. It is early, without a flow, until it is given its first path.
// Once both its streams have arrived it may rest for some seconds, without
// memory, in case the other end does not know that.
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
	err      error
	want     flow.Want
	stalls   uint32 // of flow, as hops were told

	flown   bool // flight is closed
	shaken  bool // the handshake is over: deadlines hold from then on
	trusted bool // and well
	ending  bool // CloseWrite was called
	closing bool // Close was called: what comes is thrown away
	resting bool // both streams are over, and the other end may not know
	ended   bool // Ended was called

	// What shows that the other end needs no rest of ours: our EOF went out
	// behind the last ACK, so the ACK of it says that they have that, too.
	saidAll   bool   // the ACK of their EOF was sent
	eofBehind bool   // then our EOF
	eofAt     uint64 // the count that covers it; 0: not acknowledged
	eofHeard  bool   // by an ACK, not only by a RESUME, behind which much may be unread
	// Or they say so: ends that close at once cannot know it by the order.
	ackedTo   uint64 // the last ACK that was sent
	saidDone  bool   // it said that we need nothing more
	otherDone bool   // theirs did

	lent lent // to the Conn

	readWake, writeWake chan struct{} // of capacity 1
	readBy, writeBy     deadline
	timer               *time.Timer // of the flow
	timerAt             time.Time
	limit               *time.Timer // of the handshake, of closing or of the rest
	flight              chan struct{}
	handshake           chan struct{} // closed when the handshake is over
	done                chan struct{}
	scratch             [32]byte // for small frames

	batch Batch // of the call under way; nil: frames go out at once
	own   Batch // of what is sent by one call; nil until there was some
	// gathers says that more follows, with which what own has gathered shall go out.
	gathers bool

	// outlet takes what comes on the goroutine that brings it; nil: it goes into
	// the inbox. Set only while the inbox is empty, so that no byte overtakes another.
	outlet *outlet
}

func newStream(role flow.Role, cfg Config, earlyIn []byte) *Stream {
	if cfg.Slabs == nil {
		cfg.Slabs = NewSlabPool()
	}
	return &Stream{
		cfg: cfg, role: role, earlyIn: slices.Clone(earlyIn),
		inbox:  flow.NewInbox(cfg.Slabs),
		lent:   lent{slabs: cfg.Slabs, budget: cfg.Budget},
		flight: make(chan struct{}), handshake: make(chan struct{}), done: make(chan struct{}),
		readWake: make(chan struct{}, 1), writeWake: make(chan struct{}, 1),
		readBy: newDeadline(), writeBy: newDeadline(),
	}
}

// up gives the stream its first path, with the other end's early bytes.
func (s *Stream) up(generation uint32, hop Hop, earlyIn []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.flow != nil:
		return errors.New("circuit is up already")
	case len(earlyIn) > wire.MaxEarlyBack:
		return fmt.Errorf("first flight of the host is longer than %d bytes", wire.MaxEarlyBack)
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
	if n := f.Append(s.earlyOut); n < len(s.earlyOut) { // more than the answer could carry
		f.Close()
		return ginnel.Busy
	}
	s.flow, s.hop, s.earlyOut = f, hop, nil
	s.earlyIn = append(s.earlyIn, earlyIn...)
	if s.limit == nil && !s.shaken {
		s.limit = time.AfterFunc(handshakeTimeout, s.overdue)
	}
	s.land()
	s.gatherLocked() // START goes with what the handshake writes next, or before it waits
	s.pump(now)
	s.batch = nil
	wake(s.readWake)
	return nil
}

// Reset ends the circuit with a code that the other end hears, if it can be reached.
func (s *Stream) Reset(code ginnel.Code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset(code, text)
}

func (s *Stream) reset(code ginnel.Code, text string) {
	switch {
	case s.ended:
	case s.flow == nil:
		s.finish(&ginnel.DialError{Code: code, Message: text, Circuit: s.cfg.Circuit})
	default:
		s.flow.Reset(code, text)
		s.pump(time.Now())
	}
}

// fail ends a stream that is early.
func (s *Stream) fail(err error) {
	if err == nil {
		err = errEarlyEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil {
		s.finish(err)
	}
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

// Generation gives that of the path in use; 0 while early.
func (s *Stream) Generation() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flow == nil {
		return 0
	}
	return s.flow.Generation()
}

// Wanted gives what the end wants now, for those who go on trying.
func (s *Stream) Wanted() flow.Want {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
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

// flowErr gives the flow's error with the circuit's id.
func (s *Stream) flowErr() error {
	err := s.flow.Err()
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		d.Circuit = s.cfg.Circuit
		return d
	}
	return err
}

// bothKnow reports whether the other end has our last ACK and we have theirs.
func (s *Stream) bothKnow() bool { return s.eofBehind && s.eofHeard || s.otherDone }

// over ends a stream whose flow is done, at once or after a rest. The lock is held.
func (s *Stream) over(now time.Time) {
	switch {
	case s.bothKnow() && s.flow.Err() == nil:
		// The other end may be resting: tell it.
		s.flow.Reset(ginnel.PeerReset, "over")
		if fr, ok := s.flow.Next(now); ok {
			s.send(fr)
		}
		s.finish(nil)
	case s.resting: // nobody cares how the rest ended
		s.finish(nil)
	case s.flow.Rest():
		s.resting = true
		s.lent.settle()
		s.sayDone()
		s.inbox.Close()
		s.stopLimit()
		s.limit = time.AfterFunc(rest, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.finish(nil)
		})
		wake(s.readWake)
		wake(s.writeWake)
		s.arm(now)
	default:
		s.finish(s.flowErr())
	}
}

// sayDone repeats the last ACK, if that did not say yet that this end needs
// nothing more. The lock is held.
func (s *Stream) sayDone() {
	if s.saidDone {
		return
	}
	s.saidDone = true
	b := wire.AppendUint64Frame(s.scratch[:0], s.hop.Label(), wire.Ack, s.ackedTo)
	wire.PutFlags(b, wire.AckDone)
	s.hop.Urgent(s.batch, b)
}

// finish ends the stream. What has come may still be read. The lock is held.
func (s *Stream) finish(err error) {
	if s.ended {
		return
	}
	s.ended = true
	s.lent.settle()
	if s.err == nil {
		s.err = err
	}
	if s.flow != nil {
		s.flow.Close()
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.stopLimit()
	if s.closing {
		s.inbox.Close()
	}
	s.earlyOut, s.hop, s.next = nil, nil, pending{}
	s.land()
	close(s.done)
	if s.cfg.Ended != nil {
		go s.cfg.Ended(err)
	}
}

func (s *Stream) stopLimit() {
	if s.limit != nil {
		s.limit.Stop()
		s.limit = nil
	}
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
