// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

func sortedKeys[V any](m map[Key]V) []Key { return slices.Sorted(maps.Keys(m)) }

// check reports the first invariant of Dialer that does not hold.
func (d *Dialer) check() error {
	live := 0
	for key, e := range d.entries {
		if err := d.checkEntry(key, e); err != nil {
			return fmt.Errorf("%s (%s): %w", key, e.state, err)
		}
		if e.attempt != 0 {
			live++
		}
	}
	if live != d.running {
		return fmt.Errorf("%d entries have a live attempt, running is %d", live, d.running)
	}
	if d.pool.len > 0 && d.running < d.cfg.MaxWorkers {
		return fmt.Errorf("%d wait for a worker while %d of %d run", d.pool.len, d.running, d.cfg.MaxWorkers)
	}
	if n := d.timers.len + d.pool.len; n != len(d.entries) {
		return fmt.Errorf("%d places in queues for %d entries", n, len(d.entries))
	}
	for _, q := range []*queue{&d.timers, &d.pool} {
		for i := range q.len {
			if i > 0 && q.at(i).before(q.at((i-1)/fanOut)) {
				return fmt.Errorf("place %d of a queue is before its parent", i)
			}
		}
	}
	return nil
}

func (d *Dialer) checkEntry(key Key, e *entry) error {
	q := &d.timers
	if e.state == Dialing && e.attempt == 0 {
		q = &d.pool
	}
	_, up := d.conns[key]
	switch {
	case e.key != key:
		return fmt.Errorf("entry is of %s", e.key)
	case e.state == None:
		return fmt.Errorf("an entry has no state")
	case len(e.addrs) == 0 || int(e.addrIndex) >= len(e.addrs):
		return fmt.Errorf("index %d of %d addresses", e.addrIndex, len(e.addrs))
	case e.pos < 0 || int(e.pos) >= q.len || q.at(int(e.pos)).e != e:
		return fmt.Errorf("does not stand at %d of its queue", e.pos)
	case e.attempt != 0 && e.state != Dialing:
		return fmt.Errorf("has live attempt %d", e.attempt)
	case up != (e.state == Connected):
		return fmt.Errorf("has a connection: %t", up)
	case e.retryDelay != 0 && e.retryDelay < time.Nanosecond:
		return fmt.Errorf("delay %s", e.retryDelay)
	}
	return nil
}
