// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// model is the contract written down a second time, as plainly as it goes: a
// list of routers, looked through from end to end, and no queue at all. The
// machine must do the same, event for event.
type model struct {
	cfg    Config
	jitter float64 // the random term, always the same
	src    Source

	now      time.Duration // since the first event
	started  bool
	open     time.Duration // end of DialDelay
	nextScan time.Duration
	scan     uint64
	scanned  time.Duration // when the latest scan began
	found    int           // by it
	routers  []modelRouter // tracked ones
	conns    []modelConn   // current ones
	turn     int
	attempt  uint64
	stats    Stats
	effects  []Action // of the latest event: all but Moved and Ignored
	ignored  int      // by the latest event
}

type modelRouter struct {
	key      Key
	state    State
	addrs    []ginnel.Address
	index    int
	delay    time.Duration
	attempts int
	attempt  uint64 // not 0: a worker is at it
	waiting  bool   // Dialing, and no worker is at it
	due      time.Duration
	turn     int // who was put off first comes first
	since    time.Duration
	err      error
}

type modelConn struct {
	key  Key
	conn uint64
}

// step takes one event at an instant.
func (m *model) step(now time.Duration, ev Event) {
	m.effects, m.ignored = m.effects[:0], 0
	if !m.started {
		m.started, m.open, m.nextScan = true, m.cfg.DialDelay, m.cfg.DialDelay
	}
	m.now = max(m.now, now)
	switch ev := ev.(type) {
	case Tick:
		m.tick()
	case ScanPage:
		m.page(ev)
	case Updated:
		m.update(ev)
	case Deleted:
		m.remove(ev.Key)
	case ConnUp:
		m.up(ev)
	case ConnLost:
		m.lost(ev)
	case DialDone:
		m.done(ev)
	case Duplicate:
		m.duplicate(ev)
	case Redial:
		if r := m.find(ev.Key); r != nil && r.state == NeedsDial {
			r.delay = 0
			m.put(r, m.now)
		} else {
			m.ignored++
		}
	case ClockJump:
		m.jump()
	case Reconfigured:
		m.cfg = ev.Config
	}
	m.startWaiting()
}

func (m *model) find(key Key) *modelRouter {
	for i := range m.routers {
		if m.routers[i].key == key {
			return &m.routers[i]
		}
	}
	return nil
}

// conn gives the router's current connection, 0 for none.
func (m *model) conn(key Key) uint64 {
	for _, c := range m.conns {
		if c.key == key {
			return c.conn
		}
	}
	return 0
}

func (m *model) setConn(key Key, conn uint64) {
	m.conns = slices.DeleteFunc(m.conns, func(c modelConn) bool { return c.key == key })
	if conn != 0 {
		m.conns = append(m.conns, modelConn{key, conn})
	}
}

func (m *model) do(a Action) { m.effects = append(m.effects, a) }

// put gives r an instant, behind all that have the same.
func (m *model) put(r *modelRouter, due time.Duration) {
	m.turn++
	r.due, r.turn = due, m.turn
}

func (m *model) enter(r *modelRouter, s State) {
	if r.state != s || s == Connected {
		r.since = m.now
	}
	r.state = s
}

// needsDial lets r wait until due; nothing is dialed during DialDelay.
func (m *model) needsDial(r *modelRouter, due time.Duration) {
	m.enter(r, NeedsDial)
	m.put(r, max(due, m.open))
}

func (m *model) track(key Key, addrs []ginnel.Address, due time.Duration) {
	m.routers = append(m.routers, modelRouter{key: key, addrs: addrs})
	m.needsDial(&m.routers[len(m.routers)-1], due)
}

// hangUp ends the dial of r, if there is one.
func (m *model) hangUp(r *modelRouter) {
	if r.attempt != 0 {
		m.do(Hangup{Key: r.key, Attempt: r.attempt})
		m.stats.HungUp++
	}
	r.attempt, r.waiting = 0, false
}

func (m *model) remove(key Key) {
	if r := m.find(key); r != nil {
		m.hangUp(r)
		m.routers = slices.DeleteFunc(m.routers, func(r modelRouter) bool { return r.key == key })
	}
}

func (m *model) count(is func(*modelRouter) bool) int {
	n := 0
	for i := range m.routers {
		if is(&m.routers[i]) {
			n++
		}
	}
	return n
}

func (m *model) running() int {
	return m.count(func(r *modelRouter) bool { return r.attempt != 0 })
}

func (m *model) waiting() int { return m.count(func(r *modelRouter) bool { return r.waiting }) }

// first gives the router for which is holds whose turn comes first.
func (m *model) first(is func(*modelRouter) bool) *modelRouter {
	var first *modelRouter
	for i := range m.routers {
		r := &m.routers[i]
		if is(r) && (first == nil || r.due < first.due || r.due == first.due && r.turn < first.turn) {
			first = r
		}
	}
	return first
}

func (m *model) startWaiting() {
	for m.running() < m.cfg.MaxWorkers {
		r := m.first(func(r *modelRouter) bool { return r.waiting })
		if r == nil {
			return
		}
		m.start(r)
	}
}

// start gives r to a worker.
func (m *model) start(r *modelRouter) {
	m.attempt++
	r.waiting, r.attempt = false, m.attempt
	r.attempts++
	m.put(r, m.now+m.cfg.ConnectTimeout)
	m.stats.Dials++
	m.stats.MaxRunning = max(m.stats.MaxRunning, m.running())
	m.do(Dial{Key: r.key, Attempt: r.attempt, Address: r.addrs[r.index]})
}

func (m *model) tick() {
	if m.now >= m.nextScan {
		for m.now >= m.nextScan {
			m.nextScan += time.Hour
		}
		m.scan++
		m.scanned, m.found = m.now, 0
		m.do(Scan{Scan: m.scan})
	}
	for range tickBatch {
		r := m.first(func(r *modelRouter) bool { return !r.waiting && r.due <= m.now })
		if r == nil {
			return
		}
		switch r.state {
		case Connected: // it survived
			m.remove(r.key)
		case Dialing: // it took too long
			attempt := r.attempt
			r.attempt = 0
			m.do(Hangup{Key: r.key, Attempt: attempt})
			m.do(Answered{Key: r.key, Attempt: attempt, Err: ErrTimeout})
			m.stats.Failed++
			m.fail(r, ErrTimeout)
		default:
			m.evaluate(r)
		}
		m.startWaiting()
	}
}

func (m *model) evaluate(r *modelRouter) {
	addrs := m.src.Addresses(r.key)
	if len(addrs) == 0 {
		m.remove(r.key)
		return
	}
	m.refresh(r, addrs)
	switch {
	case m.running() < m.cfg.MaxWorkers:
		m.enter(r, Dialing)
		m.start(r)
	case m.waiting() < m.cfg.QueueSize:
		m.enter(r, Dialing)
		r.waiting = true
		m.put(r, m.now)
	default:
		m.stats.PoolFull++
		m.fail(r, errPoolFull)
	}
}

// refresh takes a new list, and reports whether the current address is in it.
func (m *model) refresh(r *modelRouter, addrs []ginnel.Address) bool {
	current := r.addrs[r.index]
	r.addrs = addrs
	if r.index < len(addrs) && addrs[r.index] == current {
		return true
	}
	for i, a := range addrs {
		if a == current {
			r.index = i
			return true
		}
	}
	r.index %= len(addrs)
	return false
}

// fail puts r off: factor, clamp, next address.
func (m *model) fail(r *modelRouter, err error) {
	factor := math.Max(m.cfg.RetryBackoffFactor+m.jitter, 1)
	delay := time.Duration(math.Round(float64(r.delay) * factor))
	delay = min(max(delay, m.cfg.MinRetryInterval), m.cfg.MaxRetryInterval)
	r.delay, r.err = delay, err
	r.index = (r.index + 1) % len(r.addrs)
	extra := time.Duration(m.cfg.DialSpread * (m.jitter + 0.5) * float64(delay))
	m.needsDial(r, m.now+delay+extra)
}

func (r *modelRouter) forgive() { r.delay, r.attempts, r.err = 0, 0, nil }

func (m *model) connected(r *modelRouter, conn uint64) {
	m.setConn(r.key, conn)
	m.enter(r, Connected)
	m.put(r, m.now+m.cfg.FastFailureWindow)
}

func (m *model) up(ev ConnUp) {
	r := m.find(ev.Key)
	switch {
	case m.conn(ev.Key) == ev.Conn:
		m.ignored++
	case r == nil:
		m.setConn(ev.Key, ev.Conn)
	default:
		m.hangUp(r)
		r.forgive()
		m.connected(r, ev.Conn)
	}
}

func (m *model) lost(ev ConnLost) {
	if m.conn(ev.Key) != ev.Conn || ev.Conn == 0 {
		m.ignored++
		return
	}
	m.setConn(ev.Key, 0)
	r := m.find(ev.Key)
	switch {
	case r == nil:
		if addrs := m.src.Addresses(ev.Key); len(addrs) > 0 {
			m.track(ev.Key, addrs, m.now)
		}
	case m.now-r.since < m.cfg.FastFailureWindow:
		m.stats.FastFailures++
		m.fail(r, errLostSoon)
	default:
		r.forgive()
		r.index = 0
		m.needsDial(r, m.now)
	}
}

func (m *model) done(ev DialDone) {
	r := m.find(ev.Key)
	if r == nil || ev.Attempt == 0 || r.attempt != ev.Attempt {
		m.ignored++
		if ev.Err == nil && m.conn(ev.Key) != ev.Conn {
			m.do(Close{Key: ev.Key, Conn: ev.Conn})
		}
		return
	}
	r.attempt = 0
	m.do(Answered{Key: ev.Key, Attempt: ev.Attempt, Err: ev.Err})
	if ev.Err != nil {
		m.stats.Failed++
		m.fail(r, ev.Err)
		return
	}
	m.stats.Succeeded++
	m.connected(r, ev.Conn)
}

func (m *model) duplicate(ev Duplicate) {
	r := m.find(ev.Key)
	if r == nil || ev.Attempt == 0 || r.attempt != ev.Attempt {
		m.ignored++
		return
	}
	r.attempt = 0
	m.stats.Duplicates++
	r.forgive()
	m.connected(r, ev.Conn)
}

func (m *model) update(ev Updated) {
	conn := m.conn(ev.Key)
	if ev.Disabled {
		m.remove(ev.Key)
		if conn != 0 {
			m.setConn(ev.Key, 0)
			m.do(Close{Key: ev.Key, Conn: conn})
		}
		return
	}
	addrs, r := m.src.Addresses(ev.Key), m.find(ev.Key)
	switch {
	case len(addrs) == 0:
		m.remove(ev.Key)
	case r == nil && conn == 0:
		m.track(ev.Key, addrs, m.now)
	case r != nil:
		if listed := m.refresh(r, addrs); !listed && r.state == NeedsDial {
			m.needsDial(r, m.now)
		}
	}
}

func (m *model) page(ev ScanPage) {
	if ev.Scan != m.scan {
		return
	}
	for _, key := range ev.Keys {
		addrs := m.src.Addresses(key)
		if m.find(key) != nil || m.conn(key) != 0 || len(addrs) == 0 {
			continue
		}
		due := m.scanned + time.Duration(m.found)*m.cfg.ScanSpread
		m.found++
		m.track(key, addrs, max(due, m.now))
	}
}

// jump makes those who wait due, spread, nobody later than before.
func (m *model) jump() {
	var order []*modelRouter
	for i := range m.routers {
		if r := &m.routers[i]; r.state == NeedsDial {
			order = append(order, r)
		}
	}
	slices.SortFunc(order, func(a, b *modelRouter) int {
		if a.due != b.due {
			return int(min(max(a.due-b.due, -1), 1))
		}
		return a.turn - b.turn
	})
	for k, r := range order {
		due := max(m.now+time.Duration(k)*m.cfg.ScanSpread, m.open)
		if due < r.due {
			m.needsDial(r, due)
		}
	}
}

// deadline is when the next tick has something to do.
func (m *model) deadline() time.Duration {
	at := m.nextScan
	if r := m.first(func(r *modelRouter) bool { return !r.waiting }); r != nil {
		at = min(at, r.due)
	}
	return at
}

// compare reports the first thing in which the machine, which has just done
// actions, differs from the model.
func (m *model) compare(d *Dialer, actions []Action, keys []Key) error {
	if err := m.compareActions(actions); err != nil {
		return err
	}
	for _, key := range keys {
		if err := m.compareRouter(d, key); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if got, want := d.Deadline().Sub(epoch), m.deadline(); got != want {
		return fmt.Errorf("deadline %s, want %s", got, want)
	}
	want := m.stats
	want.Tracked, want.Running = len(m.routers), m.running()
	want.Queued, want.Conns = m.waiting(), len(m.conns)
	if got := d.Stats(); got != want {
		return fmt.Errorf("stats %+v, want %+v", got, want)
	}
	return nil
}

func (m *model) compareActions(actions []Action) error {
	next, ignored := 0, 0
	for _, a := range actions {
		switch a.(type) {
		case Moved:
		case Ignored:
			ignored++
		default:
			if next == len(m.effects) || m.effects[next] != a {
				return fmt.Errorf("does %s, want %v", show(a), m.effects[next:])
			}
			next++
		}
	}
	if next < len(m.effects) {
		return fmt.Errorf("does not %s", show(m.effects[next]))
	}
	if ignored != m.ignored {
		return fmt.Errorf("ignores %d times, want %d", ignored, m.ignored)
	}
	return nil
}

func (m *model) compareRouter(d *Dialer, key Key) error {
	st, known := d.Status(key)
	r := m.find(key)
	switch {
	case known != (r != nil || m.conn(key) != 0):
		return fmt.Errorf("known: %t", known)
	case st.Conn != m.conn(key):
		return fmt.Errorf("connection %d, want %d", st.Conn, m.conn(key))
	case r == nil && st.State != None:
		return fmt.Errorf("is %s, want none", st.State)
	case r == nil:
		return nil
	case st.State != r.state || st.AddrIndex != r.index || st.Attempt != r.attempt || st.Attempts != r.attempts ||
		st.RetryDelay != r.delay || st.Since.Sub(epoch) != r.since || st.LastError != r.err: //nolint:errorlint // the very same one
		return fmt.Errorf("is %+v, want %+v", st, *r)
	case !slices.Equal(st.Addresses, r.addrs):
		return fmt.Errorf("addresses %v, want %v", st.Addresses, r.addrs)
	case r.state == NeedsDial && st.NextDial.Sub(epoch) != r.due:
		return fmt.Errorf("next dial %s, want %s", st.NextDial.Sub(epoch), r.due)
	}
	return nil
}
