// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"github.com/ginnel/ginnel"
)

// maxLabels bounds what one router can make this controller keep. Routers keep
// a channel at a few hundred.
const maxLabels = 1 << 14

// labels holds what routers have granted and no Route has used yet, by ctrl
// channel: a label has a meaning only to the router that granted it, and ends
// with the channel. Each is given out once, whatever becomes of the Route.
// Methods may be called from any goroutine.
type labels struct {
	mu   sync.Mutex
	free map[outlet][]uint32
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
}

// rowLabels are the labels of one router's Route. "In" labels are its own, on
// which frames arrive; "out" labels are its neighbours'. 0 where there is no link.
type rowLabels struct{ upIn, upOut, downIn, downOut uint32 }

// take gives the labels for a path over the channels of its routers. Each link
// takes one label of the router at either end: frames towards the peer arrive
// on the farther one's, frames towards the client on the nearer one's. When a
// router has too few none are taken and short names it.
func (l *labels) take(path []outlet) (rows []rowLabels, short ginnel.RouterID) {
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
			return nil, ch.id()
		}
	}
	rows = make([]rowLabels, len(path))
	for i := range len(path) - 1 {
		forward, backward := l.next(path[i+1]), l.next(path[i])
		rows[i].downOut, rows[i+1].upIn = forward, forward
		rows[i+1].upOut, rows[i].downIn = backward, backward
	}
	return rows, ""
}

// next takes the label that was granted first.
func (l *labels) next(ch outlet) uint32 {
	label := l.free[ch][0]
	l.free[ch] = l.free[ch][1:]
	return label
}
