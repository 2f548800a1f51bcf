// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// perform does what the table says.
func (c *circuits) perform(now time.Time, a label.Action) {
	switch a := a.(type) {
	case label.Grant:
		c.grant(a)
	case label.Install:
		c.install(now, a)
	case label.Refuse:
		err := c.routing.refusal
		if err == nil {
			err = ginnel.Errorf(a.Code, "router %s: %s", c.r.id, a.Text)
		}
		c.routing.fail(err)
	case label.Rebind:
		if r := c.byID[a.Row]; r != nil {
			r.rebind(now, a.Side, c.ports[a.Conn])
		}
	case label.Send:
		if r := c.byID[a.Row]; r != nil {
			r.control(now, a.Side, a.Control)
		}
	case label.Check:
		if r := c.byID[a.Row]; r != nil {
			c.post(checked{r})
		}
	case label.Clear:
		if r := c.byID[a.Row]; r != nil {
			c.clear(now, r, a.Why == label.Unused)
		}
	}
}

// grantPage is how many labels go into one message.
const grantPage = 2048

// grant gives a controller labels. A channel that does not take them ends: with
// another one it gets new ones.
func (c *circuits) grant(a label.Grant) {
	ch := c.chans[a.Channel]
	for page := range slices.Chunk(a.Labels, grantPage) {
		labels := make([]uint32, len(page))
		for i, l := range page {
			labels[i] = uint32(l)
		}
		m := &wire.Message{Body: &wire.Message_LabelGrant{LabelGrant: &wire.LabelGrant{Labels: labels}}}
		if err := ch.conn.Notify(m); err != nil {
			ch.conn.Close(fmt.Errorf("grant labels: %w", err))
			return
		}
	}
}

// install puts a row in place and answers its Route, or begins what has to be
// done before that.
func (c *circuits) install(now time.Time, a label.Install) {
	rt := c.routing
	r := &row{c: c, id: a.Row, circuit: a.Circuit, generation: a.Generation, role: rt.role}
	err := c.room(a.Ends)
	if err == nil {
		err = c.open(now, r, a.Ends)
	}
	if err != nil {
		rt.fail(err)
		c.refused = append(c.refused, r)
		return
	}
	c.byID[a.Row] = r
	c.rows.Add(1)
	if in := rt.route.GetIngress(); in != nil {
		r.role.ask = askKey{rt.ch.number, in.GetRequest()}
		c.byAsk[r.role.ask] = r
	}
	if r.role != nil {
		c.mu.Lock()
		c.byRoute[routeKey{r.circuit, r.generation}] = r
		c.mu.Unlock()
	}
	for _, s := range r.sides {
		if s != nil {
			c.slots.set(s)
			c.beatFor(s.edge, 1)
		}
	}
	if rt.route.GetEgress() == nil {
		rt.succeed(nil)
		return
	}
	c.setUp(rt, r)
}

// room reports why an identity may not have another row, or nil.
func (c *circuits) room(ends [2]label.Entry) *ginnel.DialError {
	for _, e := range ends {
		if e.Kind != label.Edge {
			continue
		}
		if identity := identityOf(e.Peer); c.rowsOf[identity] >= maxIdentityRows {
			busy := ginnel.Errorf(ginnel.Busy, "router %s: identity %s has %d circuits", c.r.id, identity, c.rowsOf[identity])
			busy.RetryAfter = ginnel.Duration(time.Second)
			return busy
		}
	}
	return nil
}

// open makes the parts of a row.
func (c *circuits) open(now time.Time, r *row, ends [2]label.Entry) *ginnel.DialError {
	for i, e := range ends {
		if e.Kind == label.Local {
			continue
		}
		r.sides[i] = &side{row: r, i: i, arrive: e.Arrive, send: e.Send}
		if e.Kind == label.Edge {
			r.sides[i].edge = e.Peer
		}
		r.sides[i].port.Store(c.ports[e.Conn])
	}
	if r.sides[1] == nil {
		r.host = c.routing.host
		r.hop = &hop{label: uint32(ends[0].Send)}
		r.hop.bind(c.ports[ends[0].Conn])
		return nil
	}
	ways := new([2]way)
	for i := range ways {
		from, to := ends[i], ends[1-i]
		w := &ways[i]
		w.row, w.back, w.send = r, uint32(from.Send), uint32(to.Send)
		w.in, w.out = c.ports[from.Conn], c.ports[to.Conn]
		if err := w.window.Open(now, c.budget, 0); err != nil {
			ways[0].window.Close()
			busy := ginnel.Errorf(ginnel.Busy, "router %s has no memory for another circuit", c.r.id)
			busy.RetryAfter = ginnel.Duration(time.Second)
			return busy
		}
	}
	r.ways = ways
	return nil
}

// clear takes a row out of everything, which nobody may have used.
func (c *circuits) clear(now time.Time, r *row, unused bool) {
	r.cleared = true
	delete(c.byID, r.id)
	c.rows.Add(-1)
	if r.role != nil && c.byAsk[r.role.ask] == r {
		delete(c.byAsk, r.role.ask)
	}
	c.mu.Lock()
	delete(c.byRoute, routeKey{r.circuit, r.generation})
	c.mu.Unlock()
	for _, s := range r.sides {
		if s != nil {
			c.slots.clear(s)
			c.beatFor(s.edge, -1)
		}
	}
	r.close(now)
	r.endSetUp()
	c.terms.over(r)
	c.endpoints.cleared(r, unused)
	if r.host != nil {
		r.host.lost(r)
	}
}

// beatFor counts the rows of an edge connection; empty: it is none.
func (c *circuits) beatFor(peer string, rows int) {
	if peer == "" {
		return
	}
	identity := identityOf(peer)
	if c.rowsOf[identity] += rows; c.rowsOf[identity] == 0 {
		delete(c.rowsOf, identity)
	}
	before := c.beats[peer]
	if c.beats[peer] += rows; c.beats[peer] == 0 {
		delete(c.beats, peer)
	}
	if before == 0 || c.beats[peer] == 0 {
		c.beat(peer)
	}
}

// beat sets the rhythm of an edge connection by whether it carries circuits.
func (c *circuits) beat(peer string) {
	if ec := c.r.edge.at(peer); ec != nil {
		ec.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, c.beats[peer] > 0))
	}
}
