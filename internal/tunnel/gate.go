// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
)

const (
	// patience is how many dials of a service fail in a row before it counts as dead.
	patience = 8
	// probeInterval is how often a dead service is dialed, if programs ask for it;
	// all others of them are refused at once with the last failure.
	probeInterval = 100 * time.Millisecond
)

// errAgain is why a connection to a dead service is refused without a dial.
var errAgain = errors.New("fails again and again")

// gate keeps one service from taking what belongs to the others: programs that
// hammer a dead one cost no dials, and those that open connections and never
// speak get no more than a share. It may be used from any number of goroutines.
type gate struct {
	share int // most connections to one service at a time

	mu    sync.Mutex
	loads map[ginnel.ServiceID]*load // guarded by mu; of those that hold connections or fail
}

// load is what a service takes.
type load struct {
	open   int       // connections, dials included
	failed int       // dials in a row
	last   error     // of those
	probed time.Time // when it was last dialed
}

func newGate(share int) *gate {
	return &gate{share: share, loads: make(map[ginnel.ServiceID]*load)}
}

// enter asks for a connection to service. Without an error, dialed and then
// leave must follow.
func (g *gate) enter(now time.Time, service ginnel.ServiceID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.loads[service]
	if l == nil {
		l = &load{}
		g.loads[service] = l
	}
	switch {
	case l.open >= g.share:
		return ginnel.Errorf(ginnel.Busy, "%d connections to it are open, which is the share of one service", l.open)
	case l.failed >= patience && now.Sub(l.probed) < probeInterval:
		return fmt.Errorf("%w: %w", errAgain, l.last)
	}
	l.open++
	l.probed = now
	return nil
}

// dialed tells how the dial of a connection ended. One that its program gave
// up says nothing about the service.
func (g *gate) dialed(service ginnel.ServiceID, err error, givenUp bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.loads[service]
	switch {
	case err == nil:
		l.failed, l.last = 0, nil
	case !givenUp:
		l.failed++
		l.last = err
	}
}

// leave ends a connection, whether its dial went well or not.
func (g *gate) leave(service ginnel.ServiceID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.loads[service]
	l.open--
	if l.open == 0 && l.failed == 0 {
		delete(g.loads, service)
	}
}

// keep forgets the failures of services that are no longer there.
func (g *gate) keep(known func(ginnel.ServiceID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for service, l := range g.loads {
		if l.open == 0 && !known(service) {
			delete(g.loads, service)
		}
	}
}
