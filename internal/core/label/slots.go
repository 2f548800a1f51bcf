// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"math/rand/v2"
	"time"
)

type use uint8

const (
	resting use = iota
	granted
	used
)

// slot is one place of the table. channel and pos hold a value while granted.
type slot struct {
	channel uint64
	pos     uint32 // in the channel's unused
	gen     uint16
	use     use
}

// rest is a slot that is free from an instant on.
type rest struct {
	at   time.Time
	slot uint32
}

// slots hands out labels. Those that rest stand in a queue in the order in which
// they become free, since all rest equally long.
//
// Invariant: every slot made is in the queue, or granted, or used by one row.
type slots struct {
	rng   *rand.Rand
	made  []slot // made[0] is never used
	limit int    // len(made) at most
	queue []rest
	first int // of the queue; what stands before it is taken
}

// take gives a label that nobody has; 0 when there is none now. Rested slots come
// before new ones, which keeps the table small.
func (s *slots) take(now time.Time, as use) Label {
	var i uint32
	switch {
	case s.first < len(s.queue) && !now.Before(s.queue[s.first].at):
		i = s.queue[s.first].slot
		s.first++
		s.compact()
		s.made[i].gen = (s.made[i].gen + 1) & genMask
	case len(s.made) < s.limit:
		// Generations begin anywhere: labels of an earlier life of this process
		// are not likely to be those of this one.
		i = uint32(len(s.made))
		s.made = append(s.made, slot{gen: uint16(s.rng.Uint32() & genMask)})
	default:
		return 0
	}
	s.made[i].use = as
	return New(i, s.made[i].gen)
}

// compact forgets the taken half of the queue.
func (s *slots) compact() {
	if s.first > 64 && 2*s.first > len(s.queue) {
		s.queue = s.queue[:copy(s.queue, s.queue[s.first:])]
		s.first = 0
	}
}

// free lets the slot of l rest.
func (s *slots) free(now time.Time, l Label) {
	s.made[l.Slot()].use = resting
	s.queue = append(s.queue, rest{now.Add(restTime), l.Slot()})
}

// next gives when a resting slot becomes free; zero when none rests.
func (s *slots) next() time.Time {
	if s.first == len(s.queue) {
		return time.Time{}
	}
	return s.queue[s.first].at
}

// channel is a ctrl channel and the labels that it has not used.
type channel struct {
	id     uint64
	unused []Label
}

// grantedTo reports whether the channel may use l.
func (s *slots) grantedTo(c *channel, l Label) bool {
	if l.Slot() == 0 || int(l.Slot()) >= len(s.made) {
		return false
	}
	m := &s.made[l.Slot()]
	return m.use == granted && m.channel == c.id && m.gen == l.Gen()
}

// grant gives a channel labels until it has n, or there are none left.
func (s *slots) grant(now time.Time, c *channel, n int) []Label {
	had := len(c.unused)
	for len(c.unused) < n {
		l := s.take(now, granted)
		if l == 0 {
			break
		}
		m := &s.made[l.Slot()]
		m.channel, m.pos = c.id, uint32(len(c.unused))
		c.unused = append(c.unused, l)
	}
	return append([]Label(nil), c.unused[had:]...)
}

// spend takes a granted label away from its channel.
func (s *slots) spend(c *channel, l Label) {
	m, last := &s.made[l.Slot()], len(c.unused)-1
	moved := c.unused[last]
	c.unused[m.pos] = moved
	s.made[moved.Slot()].pos = m.pos
	c.unused = c.unused[:last]
	m.use, m.channel = used, 0
}
