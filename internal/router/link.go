// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// link is one connection of a link, from its ACCEPT to its end. What is not
// marked otherwise does not change.
type link struct {
	ls         *links
	id         ginnel.LinkID
	peer       ginnel.RouterID
	peerBoot   ginnel.BootID
	conn       *transport.Conn
	number     uint64 // this router's; never given twice
	connection uint64 // the deciding end's number of it

	port *port // of circuits
	turn turn  // of the connections of the link

	state *wire.LinkState // under links.mu; replaced, never changed

	// Of the reading goroutine.
	rtt       path.RTT
	published path.Published
}

func newLink(ls *links, conn *transport.Conn, id ginnel.LinkID, a transport.Accepted) *link {
	l := &link{
		ls: ls, id: id, conn: conn, number: ls.r.nextNumber(), connection: a.Connection,
		peer: ginnel.RouterID(conn.Peer().ID), peerBoot: ginnel.BootID(a.Hello.GetBoot()),
	}
	l.port, l.turn = &port{number: l.number, conn: conn}, newTurn()
	l.state = &wire.LinkState{Id: string(id), Peer: string(l.peer), PeerBoot: string(l.peerBoot)}
	conn.SetProbing(transport.Probing{RTT: l.sample})
	return l
}

// sample takes a measured round trip, on the reading goroutine. While frames
// wait here a sample measures our own queue: it counts only when there is no other.
func (l *link) sample(s transport.Sample) {
	if s.Loaded && l.rtt.Measured() {
		return
	}
	smoothed := l.rtt.Add(s.RTT)
	if l.published.Offer(time.Now(), smoothed) {
		l.ls.measured(l, smoothed)
	}
}

// Frame passes a circuit's frame on.
func (l *link) Frame(b *transport.Batch, h wire.Header, frame []byte) error {
	return l.ls.r.circuits.frame(l, h, frame, b)
}

// Message takes nothing: routers have nothing to say to each other but frames.
func (l *link) Message(*wire.Message) error { return nil }

// turn puts the connections of one neighbour in order, at most one of which is not
// closed: the next is read once the one before has been read to its end and rows were
// told of both. Else a frame of before could still come after what came later, and
// rows be bound to what has ended.
type turn struct {
	after <-chan struct{} // over of the one before; nil: there is none
	over  chan struct{}
}

func newTurn() turn { return turn{over: make(chan struct{})} }

// await waits for the one before.
func (t turn) await(ctx context.Context) {
	if t.after == nil {
		return
	}
	select {
	case <-t.after:
	case <-ctx.Done():
	}
}

func (t turn) end() { close(t.over) }
