// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// circuitBudget bounds the bytes that all circuits may have buffered or be
	// granted: 32,768 circuits that do little, or 64 at full speed over far links.
	circuitBudget = 1 << 30
	// maxIdentityRows bounds the rows of one identity: half of what circuitBudget
	// is enough for, so that a flood of circuits leaves room for the others.
	maxIdentityRows = 1 << 14
	// maxRoutes is how many Routes may wait for the table; more are refused.
	maxRoutes = 4096
)

// circuits carries circuits: it is the shell of the label table. What happens to
// labels, rows and connections goes to the table's one goroutine (run) by post,
// which never waits. Frames do not: see row.
type circuits struct {
	r         *Router
	start     time.Time // zero of row.last
	slots     slots
	budget    *flow.Budget
	slabs     *endpoint.SlabPool
	terms     terms
	endpoints endpoints
	rows      atomic.Int64
	strays    atomic.Uint64 // frames that no row took

	inbox inbox

	// Of the table's goroutine.
	table   *label.Table
	byID    map[label.RowID]*row
	byAsk   map[askKey]*row         // the newest of a request, at the client's end
	ports   map[uint64]*port        // by number
	chans   map[uint64]*ctrlChannel // by number
	beats   map[string]int          // rows of each edge peer; those without are not in it
	rowsOf  map[string]int          // rows of each identity, likewise
	routing *routing                // of the Route that is being stepped
	refused []*row                  // installed and to be taken back

	mu      sync.Mutex
	byRoute map[routeKey]*row // those with a role
	hosted  map[ginnel.CircuitID]*hosted
	shown   *pki.CircuitServer // nil: no circuit has ended here yet
}

// routeKey names a row by what all routers call it.
type routeKey struct {
	circuit    ginnel.CircuitID
	generation uint32
}

func newCircuits(r *Router) *circuits {
	c := &circuits{
		r: r, start: time.Now(),
		budget:  flow.NewBudget(circuitBudget),
		slabs:   endpoint.NewSlabPool(),
		inbox:   inbox{wake: make(chan struct{}, 1)},
		table:   label.NewTable(label.Config{}, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))),
		byID:    make(map[label.RowID]*row),
		byAsk:   make(map[askKey]*row),
		ports:   make(map[uint64]*port),
		chans:   make(map[uint64]*ctrlChannel),
		beats:   make(map[string]int),
		rowsOf:  make(map[string]int),
		byRoute: make(map[routeKey]*row),
		hosted:  make(map[ginnel.CircuitID]*hosted),
	}
	c.terms.init(c)
	c.endpoints.init(c)
	return c
}

// event is something that happened, for the table's goroutine.
//
//sumtype:decl
type event interface{ isCircuitEvent() }

// The events.
type (
	// stepped is an event of the table itself.
	stepped struct{ event label.Event }
	// routed is a Route that was read.
	routed struct{ routing *routing }
	// joined is a new connection of a neighbour; done is closed when it may be read.
	joined struct {
		up   label.PeerUp
		port *port
		done chan struct{}
	}
	// parted is the end of a connection of a neighbour.
	parted struct{ down label.PeerDown }
	// opened and closed are of ctrl channels.
	opened struct{ ch *ctrlChannel }
	closed struct{ ch *ctrlChannel }
	// checked is a row of which the table asks when it last saw a frame. It is looked
	// at when the table hears: a frame that came meanwhile counts.
	checked struct{ row *row }
	// firstFrame says that a row is in use.
	firstFrame struct{ row *row }
	// rowOver says that a row's circuit has ended.
	rowOver struct{ row *row }
	// rowDone says that both streams of a circuit have passed over its row.
	rowDone struct{ row *row }
	// takenBack says that a row came to nothing.
	takenBack struct{ row *row }
	// setUpOver says that a row has no set-up any more.
	setUpOver struct{ row *row }
	// abandoned says that the client will not use what was set up at its request.
	abandoned struct{ ask askKey }
)

func (stepped) isCircuitEvent()    {}
func (routed) isCircuitEvent()     {}
func (joined) isCircuitEvent()     {}
func (parted) isCircuitEvent()     {}
func (opened) isCircuitEvent()     {}
func (closed) isCircuitEvent()     {}
func (checked) isCircuitEvent()    {}
func (firstFrame) isCircuitEvent() {}
func (rowOver) isCircuitEvent()    {}
func (rowDone) isCircuitEvent()    {}
func (takenBack) isCircuitEvent()  {}
func (setUpOver) isCircuitEvent()  {}
func (abandoned) isCircuitEvent()  {}

// inbox is what waits for the table's goroutine. It needs no bound: Routes name
// labels that were granted, and the rest comes of something that exists, once.
type inbox struct {
	wake chan struct{}

	mu     sync.Mutex
	events []event
	routes int
}

// post hands an event over; it never waits.
func (c *circuits) post(ev event) {
	c.inbox.mu.Lock()
	c.inbox.events = append(c.inbox.events, ev)
	c.inbox.mu.Unlock()
	c.inbox.ring()
}

// postRoute is post for a Route. When too many wait, it is refused in its turn.
func (c *circuits) postRoute(rt *routing) {
	c.inbox.mu.Lock()
	if c.inbox.routes++; c.inbox.routes > maxRoutes && rt.refusal == nil {
		rt.refusal = ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "router %s has too many routes to do", c.r.id)
	}
	c.inbox.events = append(c.inbox.events, routed{rt})
	c.inbox.mu.Unlock()
	c.inbox.ring()
}

func (in *inbox) ring() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) take() []event {
	in.mu.Lock()
	defer in.mu.Unlock()
	events := in.events
	in.events, in.routes = nil, 0
	return events
}

// run is the goroutine of the label table.
func (c *circuits) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			c.end()
			return
		case <-c.inbox.wake:
		case <-timer.C:
			c.step(label.Tick{})
		}
		for _, ev := range c.inbox.take() {
			c.handle(ev)
		}
		if at := c.table.Deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
	}
}

// handle applies one event.
func (c *circuits) handle(ev event) {
	switch ev := ev.(type) {
	case stepped:
		c.step(ev.event)
	case routed:
		c.routing = ev.routing
		c.step(ev.routing.event())
		c.routing = nil
	case joined:
		c.ports[ev.up.Conn] = ev.port
		c.step(ev.up)
		if c.beats[ev.up.Peer] > 0 {
			c.beat(ev.up.Peer)
		}
		close(ev.done)
	case parted:
		c.step(ev.down)
		delete(c.ports, ev.down.Conn)
	case opened:
		c.chans[ev.ch.number] = ev.ch
		c.step(label.ChannelUp{Channel: ev.ch.number})
	case closed:
		c.step(label.ChannelDown{Channel: ev.ch.number})
		delete(c.chans, ev.ch.number)
	case checked:
		c.step(label.Seen{Row: ev.row.id, Last: ev.row.lastSeen()})
	case firstFrame:
		if !ev.row.cleared {
			c.endpoints.used(ev.row)
		}
	case rowDone:
		c.terms.over(ev.row)
	case rowOver:
		c.endpoints.over(ev.row)
	case takenBack:
		if !ev.row.cleared {
			c.step(label.Unroute{Circuit: ev.row.circuit, Generation: ev.row.generation})
		}
	case setUpOver:
		if ev.row.role.cancel = nil; !ev.row.cleared {
			c.endpoints.expect(ev.row)
		}
	case abandoned:
		if r := c.byAsk[ev.ask]; r != nil {
			r.reset(time.Now(), nil, ginnel.Cancelled, "the client gave up")
			c.step(label.Unroute{Circuit: r.circuit, Generation: r.generation})
		}
	}
}

// step gives the table an event and does what it says. A row that could not be
// made is taken back at once.
func (c *circuits) step(ev label.Event) {
	now := time.Now()
	for _, a := range c.table.Step(now, ev) {
		c.perform(now, a)
	}
	for len(c.refused) > 0 {
		r := c.refused[0]
		c.refused = c.refused[1:]
		c.step(label.Unroute{Circuit: r.circuit, Generation: r.generation})
	}
}

// end closes what would outlive the router.
func (c *circuits) end() {
	now := time.Now()
	for _, r := range c.byID {
		r.close(now)
		r.endSetUp()
	}
	c.mu.Lock()
	hosts := make([]*hosted, 0, len(c.hosted))
	for _, h := range c.hosted {
		hosts = append(hosts, h)
	}
	c.mu.Unlock()
	for _, h := range hosts {
		h.reset(ginnel.PeerReset, "router ends")
	}
}

// channelUp comes before any message of the channel.
func (c *circuits) channelUp(ch *ctrlChannel) { c.post(opened{ch}) }

// channelGone comes after the last message of the channel.
func (c *circuits) channelGone(ch *ctrlChannel) { c.post(closed{ch}) }

// linkUp comes before any frame of the link's connection. It returns when the
// rows that had another connection of the link have this one.
func (c *circuits) linkUp(l *link) {
	c.join(label.PeerUp{Peer: string(l.id), Boot: l.peerBoot, Conn: l.number}, l.port)
}

// linkGone comes after the last frame of the link's connection.
func (c *circuits) linkGone(l *link) { c.part(string(l.id), l.number) }

// join makes a connection known and waits until rows have it.
func (c *circuits) join(up label.PeerUp, p *port) {
	done := make(chan struct{})
	c.post(joined{up, p, done})
	select {
	case <-done:
	case <-c.r.ctx.Done():
	}
}

func (c *circuits) part(peer string, conn uint64) {
	c.post(parted{label.PeerDown{Peer: peer, Conn: conn}})
}

// frame takes a frame with a label on the link's reading goroutine. An error
// ends the connection.
func (c *circuits) frame(l *link, h wire.Header, frame []byte, b *transport.Batch) error {
	c.take(l.port, b, h, frame)
	return nil
}

// take hands a frame to the row that it belongs to.
func (c *circuits) take(p *port, b *transport.Batch, h wire.Header, frame []byte) {
	s := c.slots.find(h.Label, p)
	if s == nil {
		c.strays.Add(1)
		return
	}
	s.row.take(s.i, p, b, h, frame)
}

// count gives the number of rows.
func (c *circuits) count() int { return int(c.rows.Load()) }

// rowOf gives a row at an end of its circuit; nil: there is none.
func (c *circuits) rowOf(circuit string, generation uint32) *row {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRoute[routeKey{ginnel.CircuitID(circuit), generation}]
}
