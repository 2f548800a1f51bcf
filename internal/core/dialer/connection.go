// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

// connected makes conn, which just came up, the current connection of e. e has
// no live dial and does not wait for a worker.
func (d *Dialer) connected(e *entry, conn uint64, why string) {
	from := e.state
	d.conns[e.key] = conn
	e.state, e.since = Connected, d.now
	d.schedule(e, after(d.now, d.cfg.FastFailureWindow))
	d.moved(e, from, why)
}

// connUp takes a connection that came from outside.
func (d *Dialer) connUp(ev ConnUp) {
	if d.conns[ev.Key] == ev.Conn {
		d.emit(Ignored{Key: ev.Key, Why: "connection is known already"})
		return
	}
	e := d.entries[ev.Key]
	if e == nil {
		d.conns[ev.Key] = ev.Conn
		return
	}
	if e.state == Dialing {
		d.unqueue(e)
	}
	e.forgive()
	d.connected(e, ev.Conn, "connected from outside")
}

// connLost takes the loss of a connection.
func (d *Dialer) connLost(ev ConnLost) {
	if conn, ok := d.conns[ev.Key]; !ok || conn != ev.Conn {
		d.emit(Ignored{Key: ev.Key, Why: "not the current connection"})
		return
	}
	delete(d.conns, ev.Key)
	e := d.entries[ev.Key]
	if e == nil {
		if addrs := d.src.Addresses(ev.Key); len(addrs) > 0 {
			d.track(ev.Key, addrs, d.now, "connection lost")
		}
		return
	}
	if d.now-e.since < instant(d.cfg.FastFailureWindow) {
		d.stats.FastFailures++
		d.failed(e, errLostSoon, "connection lost soon")
		return
	}
	e.forgive()
	e.addrIndex = 0
	d.wait(e, d.now, "connection lost")
}

// updated takes what the store says about a router now.
func (d *Dialer) updated(ev Updated) {
	e := d.entries[ev.Key]
	if ev.Disabled {
		if e != nil {
			d.forget(e, "disabled")
		}
		if conn, ok := d.conns[ev.Key]; ok {
			delete(d.conns, ev.Key)
			d.emit(Close{Key: ev.Key, Conn: conn})
		}
		return
	}
	addrs := d.src.Addresses(ev.Key)
	_, up := d.conns[ev.Key]
	switch {
	case e == nil && len(addrs) > 0 && !up:
		d.track(ev.Key, addrs, d.now, "updated")
	case e == nil:
	case len(addrs) == 0:
		d.forget(e, "no addresses")
	case !e.refresh(addrs) && e.state == NeedsDial:
		d.wait(e, d.now, "address is gone")
	}
}

// deleted forgets a router that is no more.
func (d *Dialer) deleted(key Key) {
	if e := d.entries[key]; e != nil {
		d.forget(e, "deleted")
	}
}
