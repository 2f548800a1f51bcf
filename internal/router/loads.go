// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// loadsEvery is how often controllers hear what links and circuits carry.
	loadsEvery = 5 * time.Second
	// loadsMost is how many links or circuits one message tells of, so that it is
	// no longer than a frame.
	loadsMost = 64
	// beatBytes is what the heartbeat of a link may come to in that time.
	beatBytes = 4 << 10
)

// loads tells controllers what goes over links and circuits. run's goroutine owns it.
type loads struct {
	r        *Router
	at       time.Time // when it was measured last
	links    map[ginnel.LinkID]carried
	circuits map[ginnel.CircuitID]carried
}

// carried is what something had carried when it was looked at last.
type carried struct {
	sent, received uint64
	busy           time.Duration
	moved          bool // since the time before
}

// since gives what came on top of before, and whether that is worth telling: more
// than least bytes, or no more than these for the first time.
func (c *carried) since(before carried, least uint64) (sent, received uint64, busy time.Duration, tell bool) {
	if c.sent < before.sent || c.received < before.received || c.busy < before.busy {
		before = carried{} // it was counted anew
	}
	sent, received, busy = c.sent-before.sent, c.received-before.received, c.busy-before.busy
	c.moved = sent > least || received > least
	return sent, received, busy, c.moved || before.moved
}

// run tells all controllers until ctx ends.
func (l *loads) run(ctx context.Context) {
	l.at = time.Now()
	tick := time.NewTicker(loadsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.tell(l.measure(time.Now()))
		}
	}
}

// tell sends loads to all controllers. One that takes nothing now hears of the next.
func (l *loads) tell(all *wire.Loads) {
	var pages []*wire.Loads
	for links := range slices.Chunk(all.GetLinks(), loadsMost) {
		pages = append(pages, &wire.Loads{Links: links})
	}
	for circuits := range slices.Chunk(all.GetCircuits(), loadsMost) {
		pages = append(pages, &wire.Loads{Circuits: circuits})
	}
	for _, ch := range l.r.ctrl.all() {
		for _, page := range pages {
			if ch.conn.Offer(&wire.Message{Body: &wire.Message_Loads{Loads: page}}) != nil {
				break
			}
		}
	}
}

// measure gives what was carried since the last time, which is a while ago.
func (l *loads) measure(now time.Time) *wire.Loads {
	all := &wire.Loads{}
	ago := now.Sub(l.at)
	l.at = now
	a := func(n uint64) uint64 { return uint64(float64(n) / ago.Seconds()) }
	by, _ := l.r.links.traffic()
	links := make(map[ginnel.LinkID]carried, len(by))
	for id, t := range by {
		total := carried{sent: t.Sent.Bytes, received: t.Received.Bytes, busy: t.Busy}
		sent, received, busy, tell := total.since(l.links[id], beatBytes)
		links[id] = total
		if tell {
			all.Links = append(all.Links, &wire.LinkLoad{
				Id: string(id), Sent: a(sent), Received: a(received), Busy: uint32(min(1000, 1000*busy/ago)),
			})
		}
	}
	ends := l.r.circuits.endpoints.carried()
	for id, total := range ends {
		sent, received, _, tell := total.since(l.circuits[id], 0)
		ends[id] = total
		if tell {
			all.Circuits = append(all.Circuits, &wire.CircuitLoad{
				Circuit: string(id), Sent: a(sent), Received: a(received), BytesSent: total.sent, BytesReceived: total.received,
			})
		}
	}
	l.links, l.circuits = links, ends
	return all
}

// carried gives what circuits have carried whose client is behind this router.
func (es *endpoints) carried() map[ginnel.CircuitID]carried {
	es.mu.Lock()
	defer es.mu.Unlock()
	found := make(map[ginnel.CircuitID]carried)
	for key, e := range es.ends {
		if !key.host {
			up, down := e.bytes()
			found[key.circuit] = carried{sent: up, received: down}
		}
	}
	return found
}
