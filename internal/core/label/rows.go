// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
)

func (t *Table) find(c ginnel.CircuitID, generation uint32) *row {
	for r := t.circuits[c]; r != nil; r = r.older {
		if r.generation == generation {
			return r
		}
	}
	return nil
}

// route installs a row or refuses; labels that it names are used up either way.
func (t *Table) route(now time.Time, ev Route) {
	c := t.channel(ev.Channel)
	code, text := t.judge(now, c, ev)
	spent := t.spend(c, ev)
	if code == ginnel.CodeOK {
		code, text = t.install(now, ev)
	}
	if code == ginnel.CodeOK {
		return
	}
	for _, l := range spent {
		if l != 0 {
			t.slots.free(now, l)
		}
	}
	t.do(Refuse{ev.Channel, ev.Circuit, ev.Generation, code, text})
}

// judge says whether a Route can be carried out.
func (t *Table) judge(now time.Time, c *channel, ev Route) (ginnel.Code, string) {
	if c == nil {
		return ginnel.RouterErrGeneric, "the ctrl channel has ended"
	}
	if r := t.circuits[ev.Circuit]; r != nil && ev.Generation <= r.generation {
		return ginnel.StaleGeneration, fmt.Sprintf("generation %d stands, %d is asked for", r.generation, ev.Generation)
	}
	if !now.Before(ev.Deadline) {
		return ginnel.DeadlineExceeded, "the route came after its deadline"
	}
	a, b := &ev.Ends[0], &ev.Ends[1]
	if a.Kind == Local && b.Kind == Local || a.Kind == Link && b.Kind == Link && (a.Peer == b.Peer || a.Arrive == b.Arrive) {
		return ginnel.RouterErrGeneric, "the route has the same side twice"
	}
	for i := range ev.Ends {
		if code, text := t.judgeEnd(c, &ev.Ends[i]); code != ginnel.CodeOK {
			return code, text
		}
	}
	return ginnel.CodeOK, ""
}

func (t *Table) judgeEnd(c *channel, e *End) (ginnel.Code, string) {
	if e.Kind == Local {
		return ginnel.CodeOK, ""
	}
	p := t.peers[e.Peer]
	up := p != nil && p.conn != 0
	switch {
	case e.Kind == Edge && !up:
		return ginnel.PeerDetached, fmt.Sprintf("edge connection %s is not there", e.Peer)
	case e.Kind == Edge:
		return ginnel.CodeOK, ""
	case !up:
		return ginnel.RouterErrInvalidLinkDestination, fmt.Sprintf("link %s is not up", e.Peer)
	case !t.slots.grantedTo(c, e.Arrive):
		return ginnel.RouterErrGeneric, fmt.Sprintf("label %v is not granted to this controller", e.Arrive)
	case e.Send == 0:
		return ginnel.RouterErrGeneric, "the route has no label to send with"
	}
	return ginnel.CodeOK, ""
}

// spend takes the labels that a Route names from its channel.
func (t *Table) spend(c *channel, ev Route) (spent [2]Label) {
	if c == nil {
		return spent
	}
	for i, e := range ev.Ends {
		if e.Kind == Link && t.slots.grantedTo(c, e.Arrive) {
			t.slots.spend(c, e.Arrive)
			spent[i] = e.Arrive
		}
	}
	return spent
}

// install makes the row of a Route that was found good.
func (t *Table) install(now time.Time, ev Route) (ginnel.Code, string) {
	r := &row{circuit: ev.Circuit, generation: ev.Generation}
	for i, e := range ev.Ends {
		r.ends[i] = end{kind: e.Kind, arrive: e.Arrive, send: e.Send}
		switch e.Kind {
		case Local:
			r.ends[i] = end{kind: Local}
		case Edge:
			l := t.slots.take(now, used)
			if l == 0 {
				if other := r.ends[0]; i == 1 && other.kind == Edge {
					t.slots.free(now, other.arrive)
				}
				return ginnel.RouterErrResourcesNotAvailable, "no label is free"
			}
			// Unique in this table, hence on every edge connection.
			r.ends[i].arrive, r.ends[i].send = l, l
		case Link:
		}
	}
	t.lastRow++
	r.id = t.lastRow
	r.older = t.circuits[ev.Circuit]
	t.circuits[ev.Circuit] = r
	t.rows[r.id] = r
	for i := range r.ends {
		if r.ends[i].kind != Local {
			t.peers[ev.Ends[i].Peer].attach(r, i)
		}
	}
	r.timer.row = r
	t.timers.set(&r.timer, ev.Deadline.Add(routeSlack))
	t.do(Install{r.id, ev.Channel, r.circuit, r.generation, r.entries()})
	return ginnel.CodeOK, ""
}

func (r *row) entries() (entries [2]Entry) {
	for i, e := range r.ends {
		entries[i] = Entry{Kind: e.kind, Arrive: e.arrive, Send: e.send}
		if e.peer != nil {
			entries[i].Peer, entries[i].Conn = e.peer.key, e.peer.conn
		}
	}
	return entries
}

// seen judges a row by its last frame.
func (t *Table) seen(now time.Time, ev Seen) {
	r := t.rows[ev.Row]
	if r == nil {
		return
	}
	limit := IdleTime
	if r.ended {
		limit = endedTime
	}
	switch next := ev.Last.Add(limit); {
	case ev.Last.IsZero():
		t.drop(now, r, Unused)
	case !now.Before(next):
		t.drop(now, r, Idle)
	default:
		t.timers.set(&r.timer, next)
	}
}

// drop ends a row.
func (t *Table) drop(now time.Time, r *row, why Why) {
	t.timers.stop(&r.timer)
	delete(t.rows, r.id)
	t.unlink(r)
	var arrive [2]Label
	for i := range r.ends {
		e := &r.ends[i]
		if e.peer == nil {
			continue
		}
		arrive[i] = e.arrive
		e.peer.detach(e.pos)
		t.slots.free(now, e.arrive)
	}
	t.do(Clear{r.id, r.circuit, r.generation, arrive, why})
}

// unlink takes a row out of its circuit's list.
func (t *Table) unlink(r *row) {
	head := t.circuits[r.circuit]
	if head == r {
		if r.older == nil {
			delete(t.circuits, r.circuit)
		} else {
			t.circuits[r.circuit] = r.older
		}
		return
	}
	for ; head != nil; head = head.older {
		if head.older == r {
			head.older = r.older
			return
		}
	}
}
