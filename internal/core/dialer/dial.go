// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

// evaluate turns to a NeedsDial entry whose instant has come: it looks at the
// store again and submits the dial.
func (d *Dialer) evaluate(e *entry) {
	addrs := d.src.Addresses(e.key)
	if len(addrs) == 0 {
		d.forget(e, "no addresses")
		return
	}
	e.refresh(addrs)
	switch {
	case d.running < d.cfg.MaxWorkers:
		d.submit(e)
		d.start(e)
	case d.pool.len < d.cfg.QueueSize:
		d.submit(e)
		d.timers.remove(e)
		d.seq++
		d.pool.put(e, d.now, d.seq)
	default:
		d.stats.PoolFull++
		d.failed(e, errPoolFull, "pool full")
	}
}

// submit makes e Dialing; whether it runs or waits is still to be settled.
func (d *Dialer) submit(e *entry) {
	e.state, e.since = Dialing, d.now
	d.moved(e, NeedsDial, "due")
}

// start gives e, which is Dialing and not in pool, to a free worker.
func (d *Dialer) start(e *entry) {
	d.number++
	e.attempt = d.number
	e.attempts++
	d.running++
	d.stats.Dials++
	d.stats.MaxRunning = max(d.stats.MaxRunning, d.running)
	d.schedule(e, after(d.now, d.cfg.ConnectTimeout))
	d.emit(Dial{Key: e.key, Attempt: e.attempt, Address: e.address()})
}

// fill gives free workers to those who wait, first come first served.
func (d *Dialer) fill() {
	for d.running < d.cfg.MaxWorkers && d.pool.len > 0 {
		e := d.pool.at(0).e
		d.pool.remove(e)
		d.start(e)
	}
}

// release frees the worker of e.
func (d *Dialer) release(e *entry) {
	e.attempt = 0
	d.running--
}

// live gives the entry that runs the attempt, or nil.
func (d *Dialer) live(key Key, attempt uint64) *entry {
	if e := d.entries[key]; e != nil && attempt != 0 && e.attempt == attempt {
		return e
	}
	return nil
}

// dialDone takes the answer to a dial.
func (d *Dialer) dialDone(ev DialDone) {
	e := d.live(ev.Key, ev.Attempt)
	if e == nil {
		d.lateAnswer(ev)
		return
	}
	d.release(e)
	d.emit(Answered{Key: e.key, Attempt: ev.Attempt, Err: ev.Err})
	if ev.Err != nil {
		d.stats.Failed++
		d.failed(e, ev.Err, "dial failed")
		return
	}
	d.stats.Succeeded++
	d.connected(e, ev.Conn, "dialed")
}

// lateAnswer refuses the answer to a dial that was hung up, and the connection
// it may bring: nobody would own it.
func (d *Dialer) lateAnswer(ev DialDone) {
	d.emit(Ignored{Key: ev.Key, Why: "late answer to a dial"})
	if ev.Err == nil && ev.Conn != d.conns[ev.Key] {
		d.emit(Close{Key: ev.Key, Conn: ev.Conn})
	}
}

// duplicate takes the answer that another connection than the dialed one stands.
func (d *Dialer) duplicate(ev Duplicate) {
	e := d.live(ev.Key, ev.Attempt)
	if e == nil {
		d.emit(Ignored{Key: ev.Key, Why: "late answer to a dial"})
		return
	}
	d.release(e)
	d.stats.Duplicates++
	e.forgive()
	d.connected(e, ev.Conn, "connected from elsewhere")
}

// overrun fails a dial that took too long.
func (d *Dialer) overrun(e *entry) {
	attempt := e.attempt
	d.release(e)
	d.emit(Hangup{Key: e.key, Attempt: attempt})
	d.emit(Answered{Key: e.key, Attempt: attempt, Err: ErrTimeout})
	d.stats.Failed++
	d.failed(e, ErrTimeout, "dial failed")
}

// failed puts e off after a failure: a longer delay, the next address.
func (d *Dialer) failed(e *entry, err error, why string) {
	e.lastErr = err
	e.retryDelay = d.grow(e.retryDelay)
	e.rotate()
	due := after(after(d.now, e.retryDelay), d.spread(e.retryDelay))
	d.wait(e, due, why)
}

// redial makes a waiting router due now, without delay.
func (d *Dialer) redial(key Key) {
	e := d.entries[key]
	if e == nil || e.state != NeedsDial {
		d.emit(Ignored{Key: key, Why: "not waiting to be dialed"})
		return
	}
	e.retryDelay = 0
	d.schedule(e, d.now)
	d.moved(e, NeedsDial, "redial")
}
