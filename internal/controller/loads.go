// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/wire"
)

// loadAge is for how long what a router said of a load is shown: routers speak
// every 5 s, and some of it may be lost.
const loadAge = 12 * time.Second

// loads is what one router said that links and circuits carry. It is shown to
// people, and nothing is decided by it. Of what is not in the router's soft state
// nothing is kept, so that it has the same bounds.
type loads struct {
	links    map[ginnel.LinkID]linkLoad
	circuits map[ginnel.CircuitID]circuitLoad
	swept    time.Time // when what is old was dropped
}

// sweep drops what is not shown any more, now and then.
func (l *loads) sweep(now time.Time) {
	if now.Sub(l.swept) < loadAge {
		return
	}
	l.swept = now
	maps.DeleteFunc(l.links, func(_ ginnel.LinkID, o linkLoad) bool { return now.Sub(o.at) > loadAge })
	maps.DeleteFunc(l.circuits, func(_ ginnel.CircuitID, o circuitLoad) bool { return now.Sub(o.at) > loadAge })
}

type linkLoad struct {
	sent, received uint64 // bytes a second
	busy           float64
	at             time.Time
}

type circuitLoad struct {
	sent, received           uint64 // bytes a second, by the client
	bytesSent, bytesReceived uint64
	at                       time.Time
}

// setLoads takes what a router says that its links and circuits carry.
func (f *fabric) setLoads(ch *channel, m *wire.Loads) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.routers[ch.router]
	if s == nil || s.ch != ch {
		return
	}
	now := time.Now()
	s.loads.sweep(now)
	for _, l := range m.GetLinks() {
		if _, known := s.links[ginnel.LinkID(l.GetId())]; known {
			s.loads.links[ginnel.LinkID(l.GetId())] = linkLoad{l.GetSent(), l.GetReceived(), float64(min(l.GetBusy(), 1000)) / 1000, now}
		}
	}
	for _, l := range m.GetCircuits() {
		if id := ginnel.CircuitID(l.GetCircuit()); s.endpoints[endpointKey{circuit: id}] != nil {
			s.loads.circuits[id] = circuitLoad{l.GetSent(), l.GetReceived(), l.GetBytesSent(), l.GetBytesReceived(), now}
		}
	}
}

// linkLoad gives what a link carries, as its two ends say; nil: neither says
// anything, so it carries nothing or nobody knows.
func (f *fabric) linkLoad(l ginnel.Link) *api.LinkLoad {
	f.mu.Lock()
	defer f.mu.Unlock()
	var shown *api.LinkLoad
	for i, router := range []ginnel.RouterID{l.A, l.B} {
		s := f.routers[router]
		if s == nil {
			continue
		}
		said, fresh := s.loads.links[l.ID]
		if !fresh || time.Since(said.at) > loadAge {
			continue
		}
		if shown == nil {
			shown = &api.LinkLoad{}
		}
		if i == 1 {
			said.sent, said.received = said.received, said.sent
		}
		shown.AToB = max(shown.AToB, said.sent)
		shown.BToA = max(shown.BToA, said.received)
		shown.Busy = max(shown.Busy, said.busy)
	}
	return shown
}

// addLoad completes what is shown of a circuit with these ends by what the router of
// its client says that it carries.
func (f *fabric) addLoad(c *api.Circuit, ends []*endpointRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range ends {
		s := f.routers[end.router]
		if end.host || s == nil {
			continue
		}
		said, fresh := s.loads.circuits[c.ID]
		if !fresh || time.Since(said.at) > loadAge {
			continue
		}
		c.BytesSent, c.BytesReceived = max(c.BytesSent, said.bytesSent), max(c.BytesReceived, said.bytesReceived)
		c.SentRate, c.ReceivedRate = max(c.SentRate, said.sent), max(c.ReceivedRate, said.received)
	}
}
