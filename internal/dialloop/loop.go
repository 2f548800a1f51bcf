// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package dialloop is the one shell around core/dialer: it owns a machine, its
// timer and the goroutines of its dials. A controller runs it for its routers,
// a router for its controllers and for its links, an SDK for its edge routers;
// what a dial is, and what a connection, they say by a function.
//
// The loop's goroutine is the one that called Run. All other methods may be
// called from any goroutine, before, during and after Run; none of them waits
// for a dial, and those that send an event wait for nothing at all.
package dialloop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// scanPage is how many keys the loop takes from the store at a time.
const scanPage = 128

// eventBatch is how many events the loop takes before it looks at what is due.
const eventBatch = 256

// ErrStopped is given to those who ask a loop that does not run any more.
var ErrStopped = errors.New("dial loop has ended")

// DuplicateError is the outcome of a dial that found both ends connected by
// another connection, which this end holds.
type DuplicateError struct{ Conn uint64 }

// Error says which connection stays.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("already connected, by connection %d", e.Conn)
}

// Options is what a Loop is made of.
type Options struct {
	Config dialer.Config // must be valid
	Random dialer.Random // used on the loop's goroutine only
	Source dialer.Source
	// Dial makes a connection and gives its number, never 0 and never used twice;
	// or a *DuplicateError; or why there is none. It runs on a goroutine of its
	// own and must return soon after ctx ends. A connection that it makes after
	// that is closed by Close.
	Dial func(ctx context.Context, key dialer.Key, address ginnel.Address) (conn uint64, err error)
	// Close closes a connection: its peer was disabled, or it came too late.
	// It is called on the loop's goroutine and must not wait.
	Close func(key dialer.Key, conn uint64)
	// Sent is called on the dial's goroutine once its success, or that it found
	// connection conn, has been sent to the loop: a ConnLost of conn counts only
	// from then on, so who has lost it meanwhile reports that again. May be nil.
	Sent func(key dialer.Key, conn uint64)
	// Keys gives up to limit keys after the given one, in order, for a scan.
	// Nil: everything that is to be dialed is reported by Updated.
	Keys func(after dialer.Key, limit int) []dialer.Key
	// Observe sees every action, on the loop's goroutine. May be nil.
	Observe func(at time.Time, action dialer.Action)
}

// Loop runs a dial machine.
type Loop struct {
	opts    Options
	machine *dialer.Dialer
	stopped chan struct{}

	wall func() time.Time // time.Now, but in tests of a clock that jumps

	mu      sync.Mutex
	inbox   []any // dialer.Event or request, in order
	ended   bool  // nothing is taken any more
	waiting chan struct{}

	// Owned by Run.
	dials    map[uint64]context.CancelFunc
	running  sync.WaitGroup
	scan     uint64     // the scan that is under way; 0: none
	scanFrom dialer.Key // its last key
}

// request is a question to the machine, answered on the loop's goroutine.
type request struct {
	ask  func(*dialer.Dialer)
	done chan struct{}
}

// New makes a loop that does nothing before Run.
func New(opts Options) *Loop {
	return &Loop{
		opts:    opts,
		machine: dialer.New(opts.Config, opts.Random, opts.Source),
		wall:    time.Now,
		stopped: make(chan struct{}),
		waiting: make(chan struct{}, 1),
		dials:   make(map[uint64]context.CancelFunc),
	}
}

// Send reports an event. Events are taken in the order in which they were sent.
// Their number is bounded by what authenticated peers and the store can do.
func (l *Loop) Send(ev dialer.Event) { l.post(ev) }

// Ask runs fn with the machine on the loop's goroutine, between two steps, and
// waits for it.
func (l *Loop) Ask(ctx context.Context, fn func(*dialer.Dialer)) error {
	r := request{ask: fn, done: make(chan struct{})}
	l.post(r)
	select {
	case <-r.done:
		return nil
	case <-l.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Loop) post(v any) {
	l.mu.Lock()
	if !l.ended {
		l.inbox = append(l.inbox, v)
	}
	l.mu.Unlock()
	select {
	case l.waiting <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (l *Loop) take() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.inbox
	l.inbox = nil
	return all
}

// Run runs the loop until ctx ends, then hangs up what is being dialed and
// waits for it; connections that came too late are closed. It is called once.
func (l *Loop) Run(ctx context.Context) {
	defer l.end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	start := time.Now()
	clock := time.NewTicker(dialer.ClockPoll)
	defer clock.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var watch dialer.ClockWatch

	l.step(ctx, dialer.Tick{})
	for {
		if l.scan != 0 {
			l.scanOn(ctx)
		}
		l.arm(timer)
		select {
		case <-ctx.Done():
			return
		case <-l.waiting:
			l.handle(ctx, l.take())
		case <-timer.C:
			l.step(ctx, dialer.Tick{})
		case <-clock.C:
			if watch.Jumped(l.wall(), time.Since(start)) {
				l.step(ctx, dialer.ClockJump{})
			}
		}
	}
}

// end waits for the dials and gives their late connections back.
func (l *Loop) end() {
	close(l.stopped)
	l.running.Wait()
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	for _, v := range l.take() {
		l.discard(v)
	}
}

// discard takes what comes too late. A connection that nobody has been told of
// is closed; who asks is told by stopped.
func (l *Loop) discard(v any) {
	if done, ok := v.(dialer.DialDone); ok && done.Err == nil {
		l.opts.Close(done.Key, done.Conn)
	}
}

// arm sets the timer to the next thing to be done by time.
func (l *Loop) arm(timer *time.Timer) {
	if l.scan != 0 {
		timer.Reset(0)
		return
	}
	timer.Reset(time.Until(l.machine.Deadline()))
}

func (l *Loop) handle(ctx context.Context, all []any) {
	for i, v := range all {
		if ctx.Err() != nil {
			l.discard(v)
			continue
		}
		if i%eventBatch == eventBatch-1 && !l.machine.Deadline().After(time.Now()) {
			l.step(ctx, dialer.Tick{}) // a million losses at once hold up no dial
		}
		switch v := v.(type) {
		case request:
			v.ask(l.machine)
			close(v.done)
		case dialer.Event:
			l.step(ctx, v)
		}
	}
}

// step gives the machine one event and does what it answers.
func (l *Loop) step(ctx context.Context, ev dialer.Event) {
	now := time.Now()
	for _, action := range l.machine.Step(now, ev) {
		if l.opts.Observe != nil {
			l.opts.Observe(now, action)
		}
		switch a := action.(type) {
		case dialer.Dial:
			l.dial(ctx, a)
		case dialer.Hangup:
			l.hangUp(a.Attempt)
		case dialer.Close:
			l.opts.Close(a.Key, a.Conn)
		case dialer.Scan:
			if l.opts.Keys != nil {
				l.scan, l.scanFrom = a.Scan, ""
			}
		case dialer.Answered, dialer.Moved, dialer.Ignored: // for Observe
		}
	}
	l.forget(ev)
}

// forget drops the cancel function of a dial that has answered.
func (l *Loop) forget(ev dialer.Event) {
	var attempt uint64
	switch ev := ev.(type) {
	case dialer.DialDone:
		attempt = ev.Attempt
	case dialer.Duplicate:
		attempt = ev.Attempt
	default:
		return
	}
	l.hangUp(attempt)
}

// hangUp ends the context of a dial, if it is still known.
func (l *Loop) hangUp(attempt uint64) {
	if cancel := l.dials[attempt]; cancel != nil {
		cancel()
		delete(l.dials, attempt)
	}
}

// scanOn hands the machine one page of the store.
func (l *Loop) scanOn(ctx context.Context) {
	keys := l.opts.Keys(l.scanFrom, scanPage)
	if len(keys) == 0 {
		l.scan = 0
		return
	}
	l.scanFrom = keys[len(keys)-1]
	l.step(ctx, dialer.ScanPage{Scan: l.scan, Keys: keys})
}

// dial starts one dial; its answer comes back as an event, also when it panics.
func (l *Loop) dial(ctx context.Context, a dialer.Dial) {
	ctx, cancel := context.WithCancel(ctx)
	l.dials[a.Attempt] = cancel
	l.running.Go(func() {
		conn, err := l.guarded(ctx, a)
		if dup, ok := errors.AsType[*DuplicateError](err); ok {
			l.post(dialer.Duplicate{Key: a.Key, Attempt: a.Attempt, Conn: dup.Conn})
			l.sent(a.Key, dup.Conn)
			return
		}
		l.post(dialer.DialDone{Key: a.Key, Attempt: a.Attempt, Conn: conn, Err: err})
		if err == nil {
			l.sent(a.Key, conn)
		}
	})
}

func (l *Loop) sent(key dialer.Key, conn uint64) {
	if l.opts.Sent != nil {
		l.opts.Sent(key, conn)
	}
}

// guarded dials and turns a panic into a failure: one broken dial must not take
// a place in the pool for good, nor the process down.
func (l *Loop) guarded(ctx context.Context, a dialer.Dial) (conn uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			conn, err = 0, fmt.Errorf("BUG: dial of %s panicked: %v", a.Key, p)
		}
	}()
	return l.opts.Dial(ctx, a.Key, a.Address)
}
