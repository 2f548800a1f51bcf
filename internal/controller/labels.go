// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
)

const (
	// maxLabels bounds what one router can make this controller keep. Routers
	// keep a channel at a few hundred.
	maxLabels = 1 << 14
	// labelRest is how long after the deadline of a Route that never left its
	// labels are not given out: until then a neighbour may have a row with them.
	labelRest = 30 * time.Second
)

// labels holds what routers have granted and no Route has used yet, by ctrl
// channel: a label has a meaning only to the router that granted it, and ends
// with the channel. Each is given out once, unless the router never saw it used.
// Methods may be called from any goroutine.
type labels struct {
	mu   sync.Mutex
	free map[outlet][]uint32
	// resting labels were in Routes that never left, in the order of their ends.
	resting map[outlet][]restingLabel
}

type restingLabel struct {
	label uint32
	until time.Time
}

// grant adds labels of the router behind ch. What is more than maxLabels, and
// label 0, is left aside.
func (l *labels) grant(ch outlet, granted []uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == nil {
		l.free = make(map[outlet][]uint32)
	}
	for _, label := range granted {
		if label != 0 && len(l.free[ch]) < maxLabels {
			l.free[ch] = append(l.free[ch], label)
		}
	}
}

// gone forgets the labels of a channel that has ended.
func (l *labels) gone(ch outlet) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.free, ch)
	delete(l.resting, ch)
}

// rowLabels are the labels of one router's Route. "In" labels are its own, on
// which frames arrive; "out" labels are its neighbours'. 0 where there is no link.
type rowLabels struct{ upIn, upOut, downIn, downOut uint32 }

// take gives the labels for a path over the channels of its routers. Each link
// takes one label of the router at either end: frames towards the peer arrive
// on the farther one's, frames towards the client on the nearer one's. When a
// router has too few none are taken and short names it.
func (l *labels) take(now time.Time, path []outlet) (rows []rowLabels, short ginnel.RouterID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, ch := range path {
		need := 0
		if i > 0 {
			need++
		}
		if i < len(path)-1 {
			need++
		}
		if len(l.free[ch]) < need {
			l.wakeLocked(now, ch)
		}
		if len(l.free[ch]) < need {
			return nil, ch.id()
		}
	}
	rows = make([]rowLabels, len(path))
	for i := range len(path) - 1 {
		forward, backward := l.nextLocked(path[i+1]), l.nextLocked(path[i])
		rows[i].downOut, rows[i+1].upIn = forward, forward
		rows[i+1].upOut, rows[i].downIn = backward, backward
	}
	return rows, ""
}

// nextLocked takes the label that was granted first.
func (l *labels) nextLocked(ch outlet) uint32 {
	label := l.free[ch][0]
	l.free[ch] = l.free[ch][1:]
	return label
}

// unsent takes back the labels of routers whose Routes never left. The router knows
// nothing of their use, so it grants no others in their place.
func (l *labels) unsent(routers []outlet, rows []rowLabels, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, ch := range routers {
		if _, up := l.free[ch]; !up {
			continue // its channel has ended
		}
		for _, label := range []uint32{rows[i].upIn, rows[i].downIn} {
			if label == 0 || len(l.resting[ch]) == maxLabels {
				continue
			}
			if l.resting == nil {
				l.resting = make(map[outlet][]restingLabel)
			}
			at, _ := slices.BinarySearchFunc(l.resting[ch], until, func(r restingLabel, until time.Time) int { return r.until.Compare(until) })
			l.resting[ch] = slices.Insert(l.resting[ch], at, restingLabel{label, until})
		}
	}
}

// wakeLocked makes labels free that have rested long enough.
func (l *labels) wakeLocked(now time.Time, ch outlet) {
	rested := l.resting[ch]
	n := 0
	for n < len(rested) && !rested[n].until.After(now) {
		l.free[ch] = append(l.free[ch], rested[n].label)
		n++
	}
	if n > 0 {
		l.resting[ch] = slices.Clone(rested[n:])
	}
}
