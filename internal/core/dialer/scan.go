// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"cmp"
	"slices"
	"time"
)

// scanInterval lies between two scans of the store, counted from the first.
const scanInterval = time.Hour

// scanning is the state of the scans.
type scanning struct {
	next   instant // of the next Scan
	number uint64  // of the latest one; 0 before the first
	began  instant // the latest one
	found  int     // entries it has made
}

// scanIfDue asks for a scan when its time has come.
func (d *Dialer) scanIfDue() {
	s := &d.scan
	if d.now < s.next {
		return
	}
	missed := (d.now - s.next) / instant(scanInterval)
	s.next = after(s.next+missed*instant(scanInterval), scanInterval)
	s.number++
	s.began, s.found = d.now, 0
	d.emit(Scan{Scan: s.number})
}

// scanPage tracks the routers that are not and should be, ScanSpread apart.
func (d *Dialer) scanPage(ev ScanPage) {
	if ev.Scan != d.scan.number {
		return
	}
	for _, key := range ev.Keys {
		if _, up := d.conns[key]; up || d.entries[key] != nil {
			continue
		}
		addrs := d.src.Addresses(key)
		if len(addrs) == 0 {
			continue
		}
		due := spaced(d.scan.began, d.scan.found, d.cfg.ScanSpread)
		d.scan.found++
		d.track(key, addrs, max(due, d.now), "scanned")
	}
}

// clockJump makes all waiting entries due, ScanSpread apart, none later than it
// was. It is the one event that looks at every entry: it follows a sleep.
func (d *Dialer) clockJump() {
	waiting := make([]place, 0, d.timers.len)
	for i := range d.timers.len {
		if p := d.timers.at(i); p.e.state == NeedsDial {
			waiting = append(waiting, *p)
		}
	}
	slices.SortFunc(waiting, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
	for k, p := range waiting {
		due := max(spaced(d.now, k, d.cfg.ScanSpread), d.open)
		if due < p.due {
			d.wait(p.e, due, "clock jumped")
		}
	}
}
