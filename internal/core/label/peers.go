// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import "time"

// attach lists side i of a row at the peer.
func (p *peer) attach(r *row, i int) {
	r.ends[i].peer, r.ends[i].pos = p, int32(len(p.sides))
	p.sides = append(p.sides, side{r, i})
}

// detach takes the side at pos off the list.
func (p *peer) detach(pos int32) {
	last := len(p.sides) - 1
	moved := p.sides[last]
	p.sides[pos] = moved
	moved.row.ends[moved.i].pos = pos
	p.sides[last] = side{}
	p.sides = p.sides[:last]
}

// peerUp takes a new connection: of the same process its rows move to it, of
// another one they are worth nothing.
func (t *Table) peerUp(now time.Time, ev PeerUp) {
	p := t.peers[ev.Peer]
	if p == nil {
		t.peers[ev.Peer] = &peer{key: ev.Peer, boot: ev.Boot, conn: ev.Conn}
		return
	}
	if p.conn == ev.Conn {
		return
	}
	if p.conn != 0 { // the newer one tells that the older one is gone
		t.peerDown(now, p)
	}
	t.timers.stop(&p.timer)
	if p.boot != ev.Boot {
		p.boot = ev.Boot
		t.dropAll(now, p, PeerReborn)
	}
	p.conn = ev.Conn
	t.rebind(p)
	for _, s := range p.sides {
		if s.row.ends[1-s.i].up() {
			t.do(Send{s.row.id, 1 - s.i, PathMended})
		} else {
			t.do(Send{s.row.id, s.i, PathBroken})
		}
	}
}

// peerDown notes that the peer has no connection.
func (t *Table) peerDown(now time.Time, p *peer) {
	p.conn = 0
	p.timer.peer = p
	t.timers.set(&p.timer, now.Add(peerGoneTime))
	t.rebind(p)
	for _, s := range p.sides {
		if s.row.ends[1-s.i].up() {
			t.do(Send{s.row.id, 1 - s.i, PathBroken})
		}
	}
}

// rebind tells all sides at the peer its connection, before any of them sends: both
// sides of a row may be at the one peer.
func (t *Table) rebind(p *peer) {
	for _, s := range p.sides {
		t.do(Rebind{s.row.id, s.i, p.conn})
	}
}

// peerGone forgets a peer that did not come back.
func (t *Table) peerGone(now time.Time, p *peer) {
	t.timers.stop(&p.timer)
	t.dropAll(now, p, PeerGone)
	delete(t.peers, p.key)
}

// dropAll drops the peer's rows. The other sides know already that the path is
// broken: the peer's connection ended before.
func (t *Table) dropAll(now time.Time, p *peer, why Why) {
	for len(p.sides) > 0 {
		t.drop(now, p.sides[0].row, why)
	}
}
