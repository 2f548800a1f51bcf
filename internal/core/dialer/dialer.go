// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"math"
	"time"

	"github.com/ginnel/ginnel"
)

// ErrTimeout is the outcome of a dial that overran ConnectTimeout.
var ErrTimeout = errors.New("no answer within connectTimeout")

// What Status.LastError says when no dial failed.
var (
	errPoolFull = errors.New("all workers are busy and their queue is full")
	errLostSoon = errors.New("connection lost within fastFailureWindow")
)

// tickBatch is how many due entries one Tick handles at most.
const tickBatch = 128

// keepActions is how many actions a step's buffer may hold to be used again.
const keepActions = 4096

// Source is the cache in which the machine looks up a router whenever an event
// or the clock turns its attention to it. Answers come from memory: they are
// given on the loop's goroutine.
type Source interface {
	// Addresses gives where the router can be dialed now, in the order in which
	// it advertises them; none when it is unknown, disabled, or has no listener
	// in a group that counts. The slice must not change afterwards.
	Addresses(key Key) []ginnel.Address
}

// Addresses is a Source that is a map, for those who dial few peers. Replace
// whole slices, on the goroutine that owns the Dialer.
type Addresses map[Key][]ginnel.Address

// Addresses gives the addresses of key.
func (a Addresses) Addresses(key Key) []ginnel.Address { return a[key] }

// Dialer is the machine. What always holds between two steps:
//
//  1. A router has one entry at most, and one live attempt at most: a Dial that
//     is neither answered nor hung up. At most MaxWorkers are live in all, and
//     at most QueueSize wait, only while all workers are taken. (After a
//     Reconfigured with lower numbers they drain to it.)
//  2. Every Dial is ended by one Answered, or by a Hangup, or by a Duplicate.
//     An overrun gives both Hangup and Answered. A worker is free at once.
//  3. A late answer, or an event of another connection than the current one,
//     changes nothing. Attempt numbers never repeat, so a router that is
//     deleted and created again is another.
//  4. A tracked router is Connected if and only if it has a current connection.
//  5. Each entry stands in one queue, once: Dialing without attempt in pool,
//     all others in timers. It has addresses, and addrIndex is one of them.
//  6. Every entry that a Tick has handled is due later than that Tick, if at
//     all: a loop that ticks while Deadline has passed comes to an end.
//  7. NeedsDial: retryDelay is 0 or between MinRetryInterval and
//     MaxRetryInterval.
//  8. Same random numbers, events and Source give the same actions.
type Dialer struct {
	cfg Config
	rng Random
	src Source

	epoch  time.Time // now of the first step; zero before
	now    instant   // of the present step; never goes back
	open   instant   // end of DialDelay: nothing is dialed earlier, unless by Redial
	seq    uint64    // orders what is due at one instant
	number uint64    // the latest attempt

	entries map[Key]*entry
	conns   map[Key]uint64 // current connections, of tracked routers or not
	timers  queue
	pool    queue // Dialing entries that wait for a worker
	running int   // live attempts
	scan    scanning
	stats   Stats
	out     []Action
}

// New makes a Dialer that tracks nothing. cfg must be valid. The first step
// starts the clock of DialDelay: send a Tick at once.
func New(cfg Config, rng Random, src Source) *Dialer {
	return &Dialer{
		cfg: cfg, rng: rng, src: src,
		entries: make(map[Key]*entry),
		conns:   make(map[Key]uint64),
	}
}

// Step applies one event and gives the actions that follow from it, causes
// before effects. The slice is valid until the next Step. A now that is earlier
// than the one before counts as that one.
func (d *Dialer) Step(now time.Time, ev Event) []Action {
	d.begin(now)
	switch ev := ev.(type) {
	case Tick:
		d.tick()
	case ScanPage:
		d.scanPage(ev)
	case Updated:
		d.updated(ev)
	case Deleted:
		d.deleted(ev.Key)
	case ConnUp:
		d.connUp(ev)
	case ConnLost:
		d.connLost(ev)
	case DialDone:
		d.dialDone(ev)
	case Duplicate:
		d.duplicate(ev)
	case Redial:
		d.redial(ev.Key)
	case ClockJump:
		d.clockJump()
	case Reconfigured:
		d.cfg = ev.Config
	}
	d.fill()
	return d.out
}

// Deadline gives the instant of the next Tick; it may have passed. It is zero
// before the first step only.
func (d *Dialer) Deadline() time.Time {
	if d.epoch.IsZero() {
		return time.Time{}
	}
	at := d.scan.next
	if d.timers.len > 0 {
		at = min(at, d.timers.at(0).due)
	}
	return d.at(at)
}

// begin opens a step.
func (d *Dialer) begin(now time.Time) {
	if d.epoch.IsZero() {
		d.epoch = now
		d.open = after(0, d.cfg.DialDelay)
		d.scan.next = d.open
	}
	d.now = max(d.now, instant(now.Sub(d.epoch)))
	clear(d.out)
	d.out = d.out[:0]
	if cap(d.out) > keepActions {
		d.out = nil
	}
}

// tick handles what is due.
func (d *Dialer) tick() {
	d.scanIfDue()
	for range tickBatch {
		if d.timers.len == 0 || d.timers.at(0).due > d.now {
			return
		}
		switch e := d.timers.at(0).e; e.state {
		case NeedsDial:
			d.evaluate(e)
		case Dialing:
			d.overrun(e)
		case Connected:
			e.forgive()
			d.forget(e, "survived")
		case None:
			panic("BUG: an entry without a state")
		}
		d.fill()
	}
}

// at gives the time of an instant.
func (d *Dialer) at(t instant) time.Time { return d.epoch.Add(time.Duration(t)) }

// after gives t + delay, or the last instant there is.
func after(t instant, delay time.Duration) instant {
	if delay > time.Duration(math.MaxInt64-t) {
		return math.MaxInt64
	}
	return t + instant(delay)
}

// spaced gives t + k times spread, or the last instant there is.
func spaced(t instant, k int, spread time.Duration) instant {
	if spread > 0 && int64(k) > int64(math.MaxInt64-t)/int64(spread) {
		return math.MaxInt64
	}
	return t + instant(k)*instant(spread)
}

func (d *Dialer) emit(a Action) { d.out = append(d.out, a) }

// schedule puts e at due in timers, behind all that are due then.
func (d *Dialer) schedule(e *entry, due instant) {
	d.seq++
	d.timers.put(e, due, d.seq)
}

// due gives when it is e's turn; it stands in timers.
func (d *Dialer) due(e *entry) instant { return d.timers.at(int(e.pos)).due }

// moved tells where e stands now: in timers, or nowhere.
func (d *Dialer) moved(e *entry, from State, why string) {
	m := Moved{
		Key: e.key, From: from, To: e.state, Why: why,
		RetryDelay: e.retryDelay, AddrIndex: int(e.addrIndex), Attempts: int(e.attempts),
	}
	if e.state != None {
		m.NextDial = d.at(d.due(e))
	}
	d.emit(m)
}

// wait makes e NeedsDial at due, not before DialDelay is over.
func (d *Dialer) wait(e *entry, due instant, why string) {
	from := e.state
	if from != NeedsDial {
		e.state, e.since = NeedsDial, d.now
	}
	d.schedule(e, max(due, d.open))
	d.moved(e, from, why)
}

// track makes an entry that is due then.
func (d *Dialer) track(key Key, addrs []ginnel.Address, due instant, why string) {
	e := &entry{key: key, addrs: addrs, pos: notQueued}
	d.entries[key] = e
	d.wait(e, due, why)
}

// forget removes e and hangs up its dial.
func (d *Dialer) forget(e *entry, why string) {
	d.unqueue(e)
	delete(d.entries, e.key)
	from := e.state
	e.state, e.retryDelay, e.attempts, e.addrIndex = None, 0, 0, 0
	d.moved(e, from, why)
}

// unqueue takes e out of the queue it stands in and hangs up its dial.
func (d *Dialer) unqueue(e *entry) {
	if e.state == Dialing && e.attempt == 0 {
		d.pool.remove(e)
		return
	}
	d.timers.remove(e)
	if e.attempt != 0 {
		d.emit(Hangup{Key: e.key, Attempt: e.attempt})
		d.stats.HungUp++
		d.release(e)
	}
}
