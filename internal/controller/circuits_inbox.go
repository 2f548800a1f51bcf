// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuitEvent is something that the loop of the set-ups is told.
//
//sumtype:decl
type circuitEvent interface{ circuitEvent() }

type (
	// requested: a request was verified and admitted.
	requested struct{ setup *setup }

	// requestCancelled: nobody waits for the request any longer.
	requestCancelled struct{ key requestKey }

	routeConfirmed struct {
		from ginnel.RouterID
		msg  *wire.RouteConnecting
	}

	routeAnswered struct {
		from ginnel.RouterID
		msg  *wire.RouteResult
	}

	channelEnded struct{ ch outlet }

	linkEnded struct{ id ginnel.LinkID }
)

func (requested) circuitEvent()        {}
func (requestCancelled) circuitEvent() {}
func (routeConfirmed) circuitEvent()   {}
func (routeAnswered) circuitEvent()    {}
func (channelEnded) circuitEvent()     {}
func (linkEnded) circuitEvent()        {}

// maxSaid bounds what routers have said and the loop has not heard. It is far
// above what admitted set-ups can make honest routers send.
const maxSaid = 4 * maxSetups

// inbox hands events to the loop in their order. Who puts one in never waits.
// Requests are bounded by the gate, ends of channels by the channels; what
// routers say too much is dropped, as if they had not said it.
type inbox struct {
	ready signal

	mu     sync.Mutex
	events []circuitEvent
	said   int
}

func (b *inbox) put(ev circuitEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev.(type) {
	case routeConfirmed, routeAnswered, requestCancelled, linkEnded:
		if b.said == maxSaid {
			return
		}
		b.said++
	case requested, channelEnded:
	}
	b.events = append(b.events, ev)
	b.ready.fire()
}

func (b *inbox) take() []circuitEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events, b.said = nil, 0
	return events
}

// How many set-ups may run at once: in all, and out of one router, so that a
// flood at one leaves room for the others.
const (
	maxSetups          = 4096
	maxSetupsPerRouter = maxSetups / 4
)

// gate counts the set-ups that run, from before a request is verified until it
// is answered. Methods may be called from any goroutine.
type gate struct {
	mu    sync.Mutex
	total int
	of    map[ginnel.RouterID]int
}

// enter admits a request that came over a router, or says that there are too many.
func (g *gate) enter(router ginnel.RouterID) *ginnel.DialError {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err *ginnel.DialError
	switch {
	case g.total >= maxSetups:
		err = ginnel.Errorf(ginnel.Busy, "%d circuits are being set up", g.total)
	case g.of[router] >= maxSetupsPerRouter:
		err = ginnel.Errorf(ginnel.Busy, "%d circuits are being set up from router %s", g.of[router], router)
	default:
		if g.of == nil {
			g.of = make(map[ginnel.RouterID]int)
		}
		g.total++
		g.of[router]++
		return nil
	}
	err.RetryAfter = time.Second
	return err
}

// len gives how many set-ups run.
func (g *gate) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// leave ends what enter admitted.
func (g *gate) leave(router ginnel.RouterID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.of[router]--; g.of[router] == 0 {
		delete(g.of, router)
	}
}
