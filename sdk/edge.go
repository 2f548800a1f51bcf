// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxUnclaimed bounds the frames kept for labels that are not known yet.
const maxUnclaimed = 64

// edge is one connection to an edge router. It is a transport.Receiver.
type edge struct {
	c      *Client
	id     ginnel.RouterID
	boot   string // of the router
	number uint64
	conn   *transport.Conn
	// finished is closed when no more frames come.
	finished chan struct{}
	// settled is closed when the dial loop knows the connection.
	settled chan struct{}
	settle  func()

	smoothed  atomic.Int64 // round trip in ns; 0: unmeasured
	unwelcome atomic.Bool  // the router says that the identity may not be here

	mu          sync.Mutex
	gone        bool
	rtt         path.RTT
	rows        map[uint32]*row
	unclaimed   []unclaimed
	controllers []*wire.ControllerInfo
	heard       time.Time // when controllers came, on this machine's clock
}

// row is one end of a path: frames with its label belong to a circuit.
type row struct {
	circuit    *circuit
	generation uint32
	edge       *edge // changes when the connection is replaced; under circuit.mu
	arrive     uint32
	send       uint32
}

// unclaimed is a frame that came before its row: the answer that brings the
// row's label is taken by another goroutine than the one that reads frames.
type unclaimed struct {
	label   uint32
	header  wire.Header
	payload []byte
}

func newEdge(c *Client, id ginnel.RouterID, conn *transport.Conn) *edge {
	e := &edge{
		c: c, id: id, conn: conn,
		finished: make(chan struct{}), settled: make(chan struct{}),
		rows: make(map[uint32]*row),
	}
	e.settle = sync.OnceFunc(func() { close(e.settled) })
	return e
}

// Frame takes a frame of a circuit.
func (e *edge) Frame(b *transport.Batch, h wire.Header, frame []byte) error {
	payload := frame[wire.HeaderSize:]
	e.mu.Lock()
	r := e.rows[h.Label]
	if r == nil {
		e.keepLocked(h, payload)
	}
	e.mu.Unlock()
	if r != nil {
		r.circuit.stream.FrameIn(b, r.generation, h, payload)
	}
	return nil
}

// keepLocked keeps what a path that is just being made must not miss: that it
// broke, or was reset. Nothing else comes before START.
func (e *edge) keepLocked(h wire.Header, payload []byte) {
	if h.Type != wire.PathBroken && h.Type != wire.Reset || len(payload) > 512 {
		return
	}
	if len(e.unclaimed) == maxUnclaimed {
		e.unclaimed = slices.Delete(e.unclaimed, 0, 1)
	}
	e.unclaimed = append(e.unclaimed, unclaimed{h.Label, h, slices.Clone(payload)})
}

// Message takes a request or notice of the router.
func (e *edge) Message(m *wire.Message) error {
	switch body := m.GetBody().(type) {
	case *wire.Message_Services:
		e.c.services.page(e, body.Services.GetPage())
	case *wire.Message_HostDial:
		e.c.hosts.dialed(e, m.GetId(), body.HostDial)
	case *wire.Message_Cancel:
		e.c.hosts.cancelled(e, body.Cancel.GetRequest())
	case *wire.Message_Unbind:
		e.c.hosts.revoked(e, ginnel.TerminatorID(body.Unbind.GetTerminator()))
	case *wire.Message_Revoke:
		e.unwelcome.Store(true)
	case *wire.Message_Hint:
		e.c.circuits.hinted(ginnel.CircuitID(body.Hint.GetCircuit()), body.Hint.GetGeneration())
	}
	return nil
}

// sample takes a measured round trip; on the reading goroutine. One taken while
// frames waited measures queues more than distance.
func (e *edge) sample(s transport.Sample) {
	e.mu.Lock()
	first := !e.rtt.Measured()
	if first || !s.Loaded {
		e.smoothed.Store(int64(max(1, e.rtt.Add(s.RTT))))
	}
	e.mu.Unlock()
	if first {
		e.c.edges.moved()
	}
}

// hears takes the controllers that the router has channels to.
func (e *edge) hears(list *wire.Controllers) {
	e.mu.Lock()
	same := slices.EqualFunc(e.controllers, list.GetControllers(), func(a, b *wire.ControllerInfo) bool {
		return a.GetId() == b.GetId() && a.GetBoot() == b.GetBoot()
	})
	e.controllers, e.heard = list.GetControllers(), time.Now()
	e.mu.Unlock()
	if !same {
		e.c.edges.moved()
	}
}

// corrected takes what a controller says of itself in refusing a request.
func (e *edge) corrected(info *wire.ControllerInfo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for i, known := range e.controllers {
		at := known.GetClock() + now.Sub(e.heard).Nanoseconds()
		e.controllers[i] = &wire.ControllerInfo{Id: known.GetId(), Boot: known.GetBoot(), Clock: at}
		if known.GetId() == info.GetId() {
			e.controllers[i] = info
		}
	}
	e.heard = now
}

// audience gives a controller that can be asked over the connection, with its
// clock as it is now: the one called prefer if it is among them and not to be
// skipped, else any. False: there is none.
func (e *edge) audience(prefer ginnel.ControllerID, skip func(ginnel.ControllerID) bool) (*wire.ControllerInfo, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var able []*wire.ControllerInfo
	for _, info := range e.controllers {
		id := ginnel.ControllerID(info.GetId())
		if skip != nil && skip(id) {
			continue
		}
		if id == prefer {
			able = []*wire.ControllerInfo{info}
			break
		}
		able = append(able, info)
	}
	if len(able) == 0 {
		return nil, false
	}
	info := able[rand.IntN(len(able))]
	return &wire.ControllerInfo{
		Id: info.GetId(), Boot: info.GetBoot(),
		Clock: info.GetClock() + time.Since(e.heard).Nanoseconds(),
	}, true
}

// has reports whether this life of a controller can be asked over the connection.
func (e *edge) has(controller, boot string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.gone && slices.ContainsFunc(e.controllers, func(i *wire.ControllerInfo) bool {
		return i.GetId() == controller && i.GetBoot() == boot
	})
}

func (e *edge) isGone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gone
}

// add makes frames with r's label reach its circuit; false: the connection is gone.
func (e *edge) add(r *row) bool {
	e.mu.Lock()
	if e.gone {
		e.mu.Unlock()
		return false
	}
	if len(e.rows) == 0 {
		e.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, true))
	}
	r.edge = e
	e.rows[r.arrive] = r
	e.mu.Unlock()
	return true
}

// claim hands a circuit what came for a row before it was added. The circuit is up.
func (e *edge) claim(r *row) {
	e.mu.Lock()
	var early []unclaimed
	e.unclaimed = slices.DeleteFunc(e.unclaimed, func(u unclaimed) bool {
		if u.label == r.arrive {
			early = append(early, u)
		}
		return u.label == r.arrive
	})
	e.mu.Unlock()
	for _, u := range early {
		r.circuit.stream.Frame(r.generation, u.header, u.payload)
	}
}

// remove ends a row.
func (e *edge) remove(r *row) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rows[r.arrive] != r {
		return
	}
	delete(e.rows, r.arrive)
	if len(e.rows) == 0 && !e.gone {
		e.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, false))
	}
}

// detach ends the connection for its rows and gives them; nil at the second call.
func (e *edge) detach() map[uint32]*row {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return nil
	}
	e.gone = true
	rows := e.rows
	e.rows = nil
	return rows
}

// hop gives the way into the path of a row over this connection.
func (e *edge) hop(r *row) *hop { return &hop{edge: e, queue: e.conn.NewQueue(), label: r.send} }

// hop is an endpoint.Hop over an edge connection. That a frame cannot be sent
// means that the connection has ended, which its reader notices.
type hop struct {
	edge  *edge
	queue *transport.Queue
	label uint32
	first func() // called before the first Ordered; must not wait; may be nil
}

// Label gives the edge router's label.
func (h *hop) Label() uint32 { return h.label }

// Ordered sends a frame in its place.
func (h *hop) Ordered(b endpoint.Batch, frame []byte) {
	if h.first != nil {
		h.first()
	}
	batch, _ := b.(*transport.Batch)
	_ = h.edge.conn.SendData(batch, h.queue, frame)
}

// Urgent sends a frame that may overtake.
func (h *hop) Urgent(b endpoint.Batch, frame []byte) {
	batch, _ := b.(*transport.Batch)
	_ = h.edge.conn.SendFrame(batch, frame)
}

// newBatch gathers what goes to a hop.
func newBatch() endpoint.Batch { return new(transport.Batch) }

// Drop forgets what waits.
func (h *hop) Drop() int { return h.queue.Drop() }

// Stalled is for those who count.
func (*hop) Stalled() {}

// RTT gives the connection's round trip, without queues.
func (h *hop) RTT() time.Duration { return h.edge.conn.Distance() }
