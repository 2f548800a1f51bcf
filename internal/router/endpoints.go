// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// detachTime is how long an attached host may be without its edge connection, and
	// how long clients ask for a path.
	detachTime = 60 * time.Second
	// maxFormer bounds how many ends are remembered that are gone.
	maxFormer = 1 << 16
)

// endpoints knows the ends of circuits that are at this router or behind its edge
// connections, from their first frame on, and reports them. Its methods may be
// called from any goroutine and never wait.
type endpoints struct {
	c *circuits

	mu       sync.Mutex
	ends     map[endKey]*end
	attached map[string]int // ends that an SDK attached, by edge peer
	// expected are rows to hosts behind edge connections who have taken the circuit and
	// have not heard of its client: who lost the way before may come by another.
	expected map[ginnel.CircuitID]*row
	// former tells, for detachTime, behind which edge connection the host's end of a
	// circuit was that was reset there or never used: a client that may not have heard
	// of it, and asks for a path, hears it from the host.
	former map[ginnel.CircuitID]string
}

type endKey struct {
	circuit ginnel.CircuitID
	host    bool
}

// end is one end of a circuit.
type end struct {
	endKey
	generation uint32
	row        *row    // by which it is reached; nil: by none for now
	hosted     *hosted // it is in this router; nil: it is behind an edge connection
	peer       string  // of that edge connection
	ticket     *wire.Signed
	facts      *wire.Ticket
	path       []string
	links      []string
	attach     *wire.Signed // nil: it was not attached
	sequence   uint64       // of attach
	up, down   uint64       // bytes of rows before
	code       ginnel.Code  // why the circuit was reset, as rows before know
}

func (es *endpoints) init(c *circuits) {
	es.c = c
	es.ends = make(map[endKey]*end)
	es.attached = make(map[string]int)
	es.expected = make(map[ginnel.CircuitID]*row)
	es.former = make(map[ginnel.CircuitID]string)
}

// expect notes that the host of a row has taken the circuit.
func (es *endpoints) expect(r *row) {
	if r.role == nil || !r.role.host || r.host != nil || r.last.Load() != 0 {
		return
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	es.expected[r.circuit] = r
}

// unexpectLocked forgets that, and reports whether it was so.
func (es *endpoints) unexpectLocked(r *row) bool {
	expected := es.expected[r.circuit] == r
	if expected {
		delete(es.expected, r.circuit)
	}
	return expected
}

// rememberLocked notes where the host's end of a row was, behind an edge connection.
func (es *endpoints) rememberLocked(r *row) {
	if len(es.former) >= maxFormer {
		return
	}
	circuit := r.circuit
	es.former[circuit] = r.sides[1].edge
	time.AfterFunc(detachTime, func() {
		es.mu.Lock()
		defer es.mu.Unlock()
		delete(es.former, circuit)
	})
}

// used notes that a row is in use: it is the way to its ends from now on, unless that
// was told so late that the circuit has ended.
func (es *endpoints) used(r *row) {
	if r.role == nil || r.role.facts == nil {
		return
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	es.unexpectLocked(r)
	if r.role.client {
		es.moveLocked(r, endKey{r.circuit, false}, r.sides[0].edge, nil)
	}
	if r.role.host {
		peer := ""
		if r.sides[1] != nil {
			peer = r.sides[1].edge
		}
		es.moveLocked(r, endKey{r.circuit, true}, peer, r.host)
	}
}

// moveLocked makes a row the way to an end.
func (es *endpoints) moveLocked(r *row, key endKey, peer string, h *hosted) {
	e := es.ends[key]
	switch {
	case e == nil:
		e = &end{endKey: key, ticket: r.role.ticket, facts: r.role.facts}
		es.ends[key] = e
	case e.row != nil && e.generation >= r.generation:
		return
	default:
		e.leave()
	}
	e.generation, e.row, e.hosted = r.generation, r, h
	e.path, e.links = r.role.path, r.role.links
	if e.peer != peer {
		es.unattachLocked(e)
		e.peer = peer
	}
	es.reportLocked(e)
}

// leave takes the row's bytes over.
func (e *end) leave() {
	if e.row != nil {
		up, down := e.row.bytes()
		if code := ginnel.Code(e.row.code.Load()); code != ginnel.CodeOK {
			e.code = code
		}
		e.up, e.down, e.row = e.up+up, e.down+down, nil
	}
}

// unattachLocked forgets that the end was attached.
func (es *endpoints) unattachLocked(e *end) {
	if e.attach == nil {
		return
	}
	e.attach, e.sequence = nil, 0
	if es.attached[e.peer]--; es.attached[e.peer] == 0 {
		delete(es.attached, e.peer)
	}
}

// cleared takes a row away, unused or not. Its ends go with it, but for those that can
// still be found: in this router, or attached over a connection that lives.
func (es *endpoints) cleared(r *row, unused bool) {
	es.eachOf(r, unused, func(e *end) {
		e.leave()
		if e.code == ginnel.CodeOK && !r.done.Load() { // nobody has ended it: it came to its end
			e.code = r.expired()
		}
		if e.hosted != nil && !es.c.hosts(e.hosted) || e.hosted == nil && (e.attach == nil || es.c.r.edge.at(e.peer) == nil) {
			es.removeLocked(e)
		}
	})
}

// over takes the ends of a row away whose circuit has ended, and what the row knew of
// it: the row itself stays for a while.
func (es *endpoints) over(r *row) {
	es.eachOf(r, r.role != nil && r.role.hostReset.Load(), es.removeLocked)
	if r.role != nil {
		r.role.ticket, r.role.facts, r.role.path, r.role.links = nil, nil, nil, nil
	}
}

// eachOf calls do, under the lock, with the ends that are reached by a row. The host's,
// if it is behind an edge connection, is remembered if it shall be.
func (es *endpoints) eachOf(r *row, remember bool, do func(*end)) {
	if r.role == nil {
		return
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	theirs := es.unexpectLocked(r)
	for _, host := range []bool{false, true} {
		if e := es.ends[endKey{r.circuit, host}]; e != nil && e.row == r {
			theirs = theirs || host && e.hosted == nil
			do(e)
		}
	}
	if theirs && remember {
		es.rememberLocked(r)
	}
}

// hostEnded takes the end of a circuit away that was hosted here; code says why.
func (es *endpoints) hostEnded(h *hosted, code ginnel.Code) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e := es.ends[endKey{h.circuit, true}]; e != nil && e.hosted == h {
		e.code = code
		es.removeLocked(e)
	}
}

func (es *endpoints) removeLocked(e *end) {
	e.leave()
	delete(es.ends, e.endKey)
	es.unattachLocked(e)
	s := e.state()
	s.Removed, s.Code = true, uint32(e.code)
	es.c.r.report.endpoint(s)
}

func (es *endpoints) reportLocked(e *end) { es.c.r.report.endpoint(e.state()) }

// bytes gives what has passed from the client to the host and back.
func (e *end) bytes() (up, down uint64) {
	up, down = e.up, e.down
	if e.row != nil {
		u, d := e.row.bytes()
		up, down = up+u, down+d
	}
	return up, down
}

func (e *end) state() *wire.EndpointState {
	up, down := e.bytes()
	s := &wire.EndpointState{
		Circuit: string(e.circuit), Generation: e.generation, Host: e.host, Ticket: e.ticket, Attach: e.attach,
		Path: e.path, Links: e.links, BytesSent: up, BytesReceived: down,
	}
	if e.host {
		s.BytesSent, s.BytesReceived = down, up
	}
	return s
}

// attach notes that the host's end of a circuit is behind an edge connection.
func (es *endpoints) attach(ec *edgeConn, signed *wire.Signed, a *wire.Attach, ticket *wire.Ticket) *ginnel.DialError {
	es.mu.Lock()
	defer es.mu.Unlock()
	key := endKey{ginnel.CircuitID(ticket.GetCircuit()), true}
	e := es.ends[key]
	switch {
	case e != nil && e.hosted != nil:
		return ginnel.Errorf(ginnel.NotAuthenticated, "circuit %s is hosted by a router", key.circuit)
	case e != nil && e.attach != nil && e.sequence >= a.GetSequence():
		return ginnel.Errorf(ginnel.StaleGeneration, "circuit %s: attach %d stands, %d is asked for", key.circuit, e.sequence, a.GetSequence())
	case es.attached[ec.peer] >= maxAttached:
		return ginnel.Errorf(ginnel.Busy, "router %s: %d circuits are attached over this connection", es.c.r.id, maxAttached)
	case e == nil:
		e = &end{endKey: key}
		es.ends[key] = e
	}
	es.unattachLocked(e)
	es.attached[ec.peer]++
	e.ticket, e.facts = a.GetTicket(), ticket
	e.attach, e.sequence, e.peer = signed, a.GetSequence(), ec.peer
	es.reportLocked(e)
	return nil
}

// detach waits for an SDK that attached ends here to come back, and takes them
// away if it does not.
func (es *endpoints) detach(ec *edgeConn) {
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.attached[ec.peer] == 0 {
		return
	}
	time.AfterFunc(detachTime, func() {
		es.mu.Lock()
		defer es.mu.Unlock()
		if es.c.r.edge.at(ec.peer) != nil {
			return
		}
		for _, e := range es.ends {
			if e.peer == ec.peer && e.attach != nil && e.row == nil {
				es.removeLocked(e)
			}
		}
	})
}

// hostPeer gives the edge peer behind which the host's end of a circuit is.
func (es *endpoints) hostPeer(circuit ginnel.CircuitID) string {
	if peer := es.peerOf(endKey{circuit, true}); peer != "" {
		return peer
	}
	es.mu.Lock()
	defer es.mu.Unlock()
	if r := es.expected[circuit]; r != nil {
		return r.sides[1].edge
	}
	return es.former[circuit]
}

// clientPeer gives the edge peer behind which the client's end of a circuit is.
func (es *endpoints) clientPeer(circuit ginnel.CircuitID) string {
	return es.peerOf(endKey{circuit, false})
}

func (es *endpoints) peerOf(key endKey) string {
	es.mu.Lock()
	defer es.mu.Unlock()
	if e := es.ends[key]; e != nil {
		return e.peer
	}
	return ""
}

// matching gives the ends of circuits for which match holds.
func (es *endpoints) matching(match func(*end) bool) []end {
	es.mu.Lock()
	defer es.mu.Unlock()
	var list []end
	for _, e := range es.ends {
		if match(e) {
			list = append(list, *e)
		}
	}
	return list
}
