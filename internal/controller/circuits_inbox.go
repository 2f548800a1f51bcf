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

	// linkEnded: a router says that a link is no longer up.
	linkEnded struct {
		from ginnel.RouterID
		id   ginnel.LinkID
	}
)

func (requested) circuitEvent()        {}
func (requestCancelled) circuitEvent() {}
func (routeConfirmed) circuitEvent()   {}
func (routeAnswered) circuitEvent()    {}
func (channelEnded) circuitEvent()     {}
func (linkEnded) circuitEvent()        {}

// maxSaid bounds what one router has said and the loop has not heard. It is far
// above what admitted set-ups can make honest routers send.
const maxSaid = 4 * maxSetupsPerRouter

// inbox hands events to the loop in their order. Who puts one in never waits.
// Requests are bounded by the gate, ends of channels by the channels; what a
// router says too much is dropped, as if it had not said it.
type inbox struct {
	ready signal

	mu     sync.Mutex
	events []circuitEvent
	said   map[ginnel.RouterID]int
}

func (b *inbox) put(ev circuitEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from, said := sayer(ev); said {
		if b.said[from] == maxSaid {
			return
		}
		if b.said == nil {
			b.said = make(map[ginnel.RouterID]int)
		}
		b.said[from]++
	}
	b.events = append(b.events, ev)
	b.ready.fire()
}

// sayer gives the router whose word an event is; false: it is nobody's.
func sayer(ev circuitEvent) (ginnel.RouterID, bool) {
	switch ev := ev.(type) {
	case routeConfirmed:
		return ev.from, true
	case routeAnswered:
		return ev.from, true
	case requestCancelled:
		return ev.key.from.id(), true
	case linkEnded:
		return ev.from, true
	case requested, channelEnded:
	}
	return "", false
}

func (b *inbox) take() []circuitEvent {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	clear(b.said)
	return events
}

// How many set-ups may run at once: in all, out of one router, and of one
// identity, so that a flood leaves room for the others.
const (
	maxSetups            = 8192
	maxSetupsPerRouter   = maxSetups / 4
	maxSetupsPerIdentity = maxSetupsPerRouter / 2
)

// gate counts the set-ups that run, from before a request is verified until it
// is answered; an identity's from when it is. Methods may be called from any
// goroutine.
type gate struct {
	mu       sync.Mutex
	total    int
	of       map[ginnel.RouterID]int
	ofClient map[ginnel.IdentityID]int
}

// enter admits a request that came over a router, or says that there are too many.
func (g *gate) enter(router ginnel.RouterID) *ginnel.DialError {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.total >= maxSetups:
		return tooMany("%d circuits are being set up", g.total)
	case g.of[router] >= maxSetupsPerRouter:
		return tooMany("%d circuits are being set up from router %s", g.of[router], router)
	}
	if g.of == nil {
		g.of = make(map[ginnel.RouterID]int)
	}
	g.total++
	g.of[router]++
	return nil
}

// enterClient admits a request that was found to be of an identity.
func (g *gate) enterClient(id ginnel.IdentityID) *ginnel.DialError {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ofClient[id] >= maxSetupsPerIdentity {
		return tooMany("%d circuits are being set up for identity %s", g.ofClient[id], id)
	}
	if g.ofClient == nil {
		g.ofClient = make(map[ginnel.IdentityID]int)
	}
	g.ofClient[id]++
	return nil
}

func tooMany(format string, args ...any) *ginnel.DialError {
	err := ginnel.Errorf(ginnel.Busy, format, args...)
	err.RetryAfter = ginnel.Duration(time.Second)
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

// leaveClient ends what enterClient admitted.
func (g *gate) leaveClient(id ginnel.IdentityID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ofClient[id]--; g.ofClient[id] == 0 {
		delete(g.ofClient, id)
	}
}
