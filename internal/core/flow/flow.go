// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"time"

	"github.com/ginnel/ginnel"
)

// Role says which end of the circuit a Flow is.
type Role uint8

// The two ends.
const (
	Client Role = iota
	Host
)

// Limits and times of an end.
const (
	// maxUnsent bounds the bytes that wait for credit or a path in an end.
	maxUnsent = 4 * MaxPayload
	// ackEvery is how many consumed bytes make an ACK due at once.
	ackEvery = 64 << 10
	// ackDelay bounds how long a consumed byte stays unacknowledged.
	ackDelay = 100 * time.Millisecond
	// mendGrace is how long an end waits for a mend before it wants more.
	mendGrace = 200 * time.Millisecond
	// answerTimeout is how long a client waits for the answer to RESUME before it
	// wants another path.
	answerTimeout = 3 * time.Second
	// keepAliveAfter is the idle time after which an end says that it is there.
	keepAliveAfter = 45 * time.Second
	// silentAfter is the time without a frame, two keepalives and some, after
	// which a path counts as broken though nobody said so.
	silentAfter = 100 * time.Second
	// hostPatience is how much longer than the client a host waits.
	hostPatience = 15 * time.Second
)

// Config says what a Flow is made of. Zero values mean the defaults.
type Config struct {
	Role       Role
	Generation uint32 // of the first path
	// Budget is what windows and retained bytes are taken from. Required.
	Budget *Budget
	// Slabs lends memory; nil: the heap.
	Slabs Slabs
	// MaxWindow bounds the window of the last hop; 0: MaxWindow.
	MaxWindow int
	// MaxRetained bounds the bytes kept for sending again, one frame more or
	// less; 0: MaxWindow. Both ends of a circuit use the same value.
	MaxRetained int
	// ResumeTimeout is how long the circuit may be without a path; 0: 60 s.
	ResumeTimeout time.Duration
}

// Want is what an end needs from outside to go on.
type Want uint8

// The wants.
const (
	WantNothing Want = iota
	// WantPath: the client asks a controller for a new path, until NewPath or WantNothing.
	WantPath
	// WantAttach: the host attaches at another edge router, until WantNothing.
	WantAttach
)

type state uint8

const (
	silent state = iota
	ready
	broken
	resuming
	closed
)

// Frames other than DATA and EOF that wait to be sent: at most one of each kind.
const (
	duePath  = 1 << iota // START or RESUME
	dueReset             // then the Flow is closed
	dueGrant
	dueAck
	dueKeepAlive
	dueBroken
)

// Flow is one end of a circuit. See the package comment for its states.
//
// Invariants: bytes are taken in state ready only; sent bytes never exceed
// credit; what the other end's reader has not consumed is at most MaxRetained and
// a frame, and so is what is retained here and unread there; acked <= next;
// consumed <= received; once closed nothing is sent and nothing is held.
type Flow struct {
	cfg        Config
	generation uint32
	state      state
	detached   bool // our own connection is gone
	started    bool // START or RESUME was sent by the client, or has come to the host
	due        uint8
	number     uint8 // of the last RESUME of this generation
	want       Want
	code       ginnel.Code // how it ended; CodeOK while it has not
	text       string

	out     retained
	credit  Credit
	stalled bool   // what is next waits for credit
	stalls  uint32 // how often that began
	read    uint64 // highest ACK: what the reader has; RESUME may free more than that
	ending  bool   // no more Append: EOF follows the last byte
	eofSent bool   // EOF was sent on this path
	eofAck  bool   // and is acknowledged
	eofEver bool   // EOF was sent on some path

	window   Window
	limit    uint64 // of the CREDIT that is due
	received uint64 // EOF counts as one byte
	consumed uint64 // the same
	acked    uint64 // the last ACK sent
	eofIn    bool

	resting bool // Rest was called: nothing is held

	rtt      time.Duration // of our hop
	since    time.Time     // without a usable path since; zero in state ready
	wantAt   time.Time     // when want becomes something; zero: not by time
	ackAt    time.Time     // when the delayed ACK is due; zero: none
	spokeAt  time.Time     // when the last frame was sent
	heardAt  time.Time     // when the last frame of this generation came
	lastCode ginnel.Code   // what a timeout without a path is called
}

// New gives one end of a circuit on its first path. A client's START is due at
// once: New is for when the controller has answered the dial. The error is
// ginnel.Busy when the budget is exhausted. Close gives back what New took.
func New(now time.Time, cfg Config) (*Flow, error) {
	if cfg.Slabs == nil {
		cfg.Slabs = heap{}
	}
	if cfg.MaxWindow == 0 {
		cfg.MaxWindow = MaxWindow
	}
	if cfg.MaxRetained == 0 {
		cfg.MaxRetained = MaxWindow
	}
	if cfg.ResumeTimeout == 0 {
		cfg.ResumeTimeout = 60 * time.Second
	}
	f := &Flow{cfg: cfg, generation: cfg.Generation, spokeAt: now, heardAt: now}
	if !cfg.Budget.Take(SlabSize) {
		return nil, ginnel.Busy
	}
	if err := f.window.Open(now, cfg.Budget, cfg.MaxWindow); err != nil {
		cfg.Budget.Give(SlabSize)
		return nil, err
	}
	f.out.purse = purse{slabs: cfg.Slabs, budget: cfg.Budget}
	if cfg.Role == Client {
		f.state, f.due = ready, duePath
	} else {
		f.since, f.lastCode = now, ginnel.IdleTimeout
	}
	return f, nil
}

// Generation gives the generation of the path in use.
func (f *Flow) Generation() uint32 { return f.generation }

// SetRTT tells the smoothed round trip of the connection to the next router.
func (f *Flow) SetRTT(rtt time.Duration) { f.rtt = rtt }

// Room gives how many bytes Append would take now; 0 also when the stream has
// ended. Room comes back with ACK and CREDIT frames.
func (f *Flow) Room() int {
	if f.ending || f.state == closed || f.due&dueReset != 0 {
		return 0
	}
	kept := f.cfg.MaxRetained - int(f.out.end-f.read)
	return max(0, min(kept, maxUnsent-int(f.out.end-f.out.next)))
}

// Append copies bytes to the end of the outgoing stream and gives how many it
// took: all as long as Room was positive before each MaxPayload of them, so an
// end-to-end TLS record goes in, and out, as a whole. Fewer also when the budget is exhausted.
func (f *Flow) Append(p []byte) (n int) {
	for n < len(p) && f.Room() > 0 {
		piece := p[n:min(len(p), n+MaxPayload)]
		if !f.out.add(piece) {
			break
		}
		n += len(piece)
	}
	return n
}

// Adopt is Append of one frame of n bytes without a copy: slab, which was got from
// the Slabs of the Flow, holds them behind HeaderRoom bytes, and is the Flow's from
// now on. It reports false, and nothing changes, when there is no Room or the
// budget is exhausted.
func (f *Flow) Adopt(slab *Slab, n int) bool {
	return f.Room() > 0 && f.out.adopt(slab, n)
}

// CloseWrite ends the outgoing stream behind the bytes appended so far. Doing it
// twice changes nothing.
func (f *Flow) CloseWrite() { f.ending = true }

// Reset ends the circuit with a code that the other end hears if there is a path
// to it, and the routers on the way as far as there is one. What was retained is freed;
// Err tells the code at once.
func (f *Flow) Reset(code ginnel.Code, text string) {
	if f.code != ginnel.CodeOK || f.state == closed {
		return
	}
	f.code, f.text = code, text
	f.due = f.due&duePath | dueReset
	f.out.drop()
	if f.detached {
		f.Close()
	}
}

// Close gives back all memory and budget, whatever the state, and sends nothing.
// A closed Flow may be asked but does nothing any more.
func (f *Flow) Close() {
	if f.state == closed {
		return
	}
	f.state, f.due, f.want = closed, 0, WantNothing
	f.giveBack()
}

// Rest gives back all memory and budget of a Flow that is Done and keeps it able
// to answer and to send RESUME: the other end may have lost the last ACK with the
// path. From then on Done tells that the Flow is closed. It reports false, and
// changes nothing, when the Flow is not Done or is closed already.
func (f *Flow) Rest() bool {
	if f.state == closed || !f.Done() {
		return false
	}
	f.giveBack()
	return true
}

func (f *Flow) giveBack() {
	if f.resting {
		return
	}
	f.resting = true
	f.out.drop()
	f.window.Close()
	f.cfg.Budget.Give(SlabSize)
}

// Done reports that nothing is left to be sent or heard: both streams ended and
// were acknowledged, or the circuit was reset. The owner calls Rest or Close then.
func (f *Flow) Done() bool {
	if f.state == closed || f.resting {
		return f.state == closed
	}
	return f.eofAck && f.eofIn && f.acked == f.received
}

// Whole reports whether the other end has ended its stream and all of it has come.
// That stays so, whatever becomes of the circuit.
func (f *Flow) Whole() bool { return f.eofIn }

// Ended reports whether the other end has ended its stream and all of it is consumed.
func (f *Flow) Ended() bool { return f.eofIn && f.consumed == f.received }

// Err gives why the circuit ended before its streams did; nil if it did not. It
// is a *ginnel.DialError.
func (f *Flow) Err() error {
	if f.code == ginnel.CodeOK {
		return nil
	}
	return &ginnel.DialError{Code: f.code, Message: f.text}
}

// Wants gives what the end needs from outside, as of the last call that was told the time.
func (f *Flow) Wants() Want { return f.want }

// Retained gives the bytes kept because they are not acknowledged.
func (f *Flow) Retained() int { return int(f.out.end - f.out.base) }

// Stalls gives how often what was to be sent began to wait for credit.
func (f *Flow) Stalls() uint32 { return f.stalls }

// Delivered reports whether the outgoing stream has ended and the other end has
// acknowledged all of it.
func (f *Flow) Delivered() bool { return f.eofAck }
