// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/dialloop"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// targetWait is how long a router that dials a link is kept waiting for a
// controller to say here, too, that the link shall be.
const targetWait = 2 * time.Second

var (
	// errUnlinked: controllers do not want this link any more.
	errUnlinked = errors.New("link is not wanted any more")
	// errUnexpected: no controller has said that the link shall be.
	errUnexpected = errors.New("link is not expected here")
)

// links holds the links that controllers want, at most one connection for each.
// The router with the lower id decides which of two connections stays.
type links struct {
	r        *Router
	registry *transport.Registry[ginnel.LinkID] // of both kinds: we decide, they decide
	loop     *dialloop.Loop

	mu      sync.Mutex
	targets map[ginnel.LinkID]*wire.LinkTarget
	up      map[ginnel.LinkID]*link
	news    changes // of targets and up
	// What was counted: by the connections that are served, by those before them of
	// each link of targets, and by those of other links.
	serving map[*link]struct{}
	past    map[ginnel.LinkID]Traffic
	dropped Traffic
}

func newLinks(r *Router, rng *rand.Rand) *links {
	ls := &links{
		r: r,
		// Numbers must not repeat when this process starts again.
		registry: transport.NewRegistry[ginnel.LinkID](uint64(time.Now().UnixMicro())),
		targets:  make(map[ginnel.LinkID]*wire.LinkTarget),
		up:       make(map[ginnel.LinkID]*link),
		serving:  make(map[*link]struct{}),
		past:     make(map[ginnel.LinkID]Traffic),
	}
	ls.loop = dialloop.New(dialloop.Options{
		Config: r.cfg.patience(linkRetry),
		Random: rng,
		Source: ls,
		Dial:   ls.dial,
		Close:  func(key dialer.Key, number uint64) { ls.close(ginnel.LinkID(key), number) },
		Observe: func(_ time.Time, action dialer.Action) {
			if a, ok := action.(dialer.Answered); ok && a.Err != nil {
				r.log.Warn("dial of a link", "link_id", string(a.Key), "attempt", a.Attempt, "err", a.Err)
			}
		},
	})
	return ls
}

// Addresses gives where a link is dialed, for the dial machine; nil: it is not.
func (ls *links) Addresses(key dialer.Key) []ginnel.Address {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if t := ls.targets[ginnel.LinkID(key)]; t.GetDial() {
		return wire.IDs[ginnel.Address](t.GetAddresses())
	}
	return nil
}

// setTargets takes the links that shall be, in place of those before.
func (ls *links) setTargets(list []*wire.LinkTarget) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	targets := make(map[ginnel.LinkID]*wire.LinkTarget, len(list))
	for _, t := range list {
		if err := ls.check(t); err != nil {
			ls.r.log.Warn("link that cannot be", "link_id", t.GetId(), "err", err)
			continue
		}
		targets[ginnel.LinkID(t.GetId())] = t
	}
	before := ls.targets
	ls.targets = targets
	for id := range before {
		if targets[id] == nil {
			ls.dropLocked(id)
		}
	}
	for id, t := range targets {
		if proto.Equal(before[id], t) {
			continue
		}
		ls.loop.Send(dialer.Updated{Key: dialer.Key(id)})
		if l := ls.up[id]; l != nil && !isPeer(l.conn, t) { // it was enrolled anew
			l.conn.Close(errUnlinked)
		} else if l != nil && l.state.GetStaticCost() != t.GetStaticCost() {
			ls.reportLocked(l, func(s *wire.LinkState) { s.StaticCost = t.GetStaticCost() })
		}
	}
	ls.news.happened()
}

// check reports why a target cannot be a link of this router, or nil.
func (ls *links) check(t *wire.LinkTarget) error {
	low, high, _, ok := ginnel.LinkID(t.GetId()).Split()
	self, peer := ls.r.id, ginnel.RouterID(t.GetPeer())
	if !ok || low != min(self, peer) || high != max(self, peer) {
		return fmt.Errorf("link %q is not one between %s and %s", t.GetId(), self, peer)
	}
	for _, a := range t.GetAddresses() {
		if _, err := ginnel.ParseAddress(a, false, "tls"); err != nil {
			return err
		}
	}
	return nil
}

// dropLocked ends a link that shall not be any more.
func (ls *links) dropLocked(id ginnel.LinkID) {
	ls.loop.Send(dialer.Deleted{Key: dialer.Key(id)})
	ls.forgetLocked(id)
	if l := ls.up[id]; l != nil {
		delete(ls.up, id)
		l.conn.Close(errUnlinked)
	}
	ls.r.report.link(&wire.LinkState{Id: string(id), Removed: true})
}

// expects reports whether the peer shall be linked, with the key that it has:
// by that link, or by any when id is empty.
func (ls *links) expects(conn *transport.Conn, id string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if id != "" {
		return isPeer(conn, ls.targets[ginnel.LinkID(id)])
	}
	for _, t := range ls.targets {
		if isPeer(conn, t) {
			return true
		}
	}
	return false
}

// isPeer reports whether a connection is to the router that a target means.
func isPeer(conn *transport.Conn, t *wire.LinkTarget) bool {
	return t.GetPeer() == conn.Peer().ID && t.GetKey() == conn.KeyHash()
}

// await is expects, and waits a little for a controller to say so: the two ends
// of a new link do not hear of it at the same instant.
func (ls *links) await(ctx context.Context, conn *transport.Conn, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, targetWait)
	defer cancel()
	for {
		news := ls.news.next()
		if ls.expects(conn, id) {
			return true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return false
		}
	}
}

// dial makes a connection of a link.
func (ls *links) dial(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
	r, id := ls.r, ginnel.LinkID(key)
	ls.mu.Lock()
	peer := ls.targets[id].GetPeer()
	ls.mu.Unlock()
	holder := r.self.held()
	if peer == "" || holder == nil {
		return 0, errUnlinked
	}
	want := ginnel.Peer{Role: ginnel.RoleRouter, ID: peer}
	conn, err := transport.DialFramed(ctx, r.out, address.HostPort(),
		pki.ClientConfig(holder, time.Now, want, wire.ALPNLink), transport.IdentifyBy(holder))
	if err != nil {
		return 0, err
	}
	l, err := ls.greet(ctx, conn, id)
	if survivor, ok := transport.IsDuplicate(err); ok {
		if l = ls.survivor(ctx, id, survivor); l == nil {
			return 0, fmt.Errorf("%w: %w", errElsewhere, err)
		}
		lostAfter(ctx, ls.loop, key, l.conn, l.number)
		return 0, &dialloop.DuplicateError{Conn: l.number}
	}
	if err != nil {
		return 0, err
	}
	r.running.Go(func() { ls.serve(r.ctx, l) })
	lostAfter(ctx, ls.loop, key, l.conn, l.number)
	return l.number, nil
}

// accept serves a router that dialed.
func (ls *links) accept(ctx context.Context, conn *transport.Conn) {
	l, err := ls.greet(ctx, conn, "")
	if err != nil {
		ls.r.log.Debug("link refused", "peer", conn.Peer().String(), "err", err)
		return
	}
	key := dialer.Key(l.id)
	ls.loop.Send(dialer.ConnUp{Key: key, Conn: l.number})
	conn.AfterClose(func() { ls.loop.Send(dialer.ConnLost{Key: key, Conn: l.number}) })
	ls.serve(ctx, l)
}

// greet makes a link of a new connection. id is empty at the end that was
// dialed: the other end names the link.
func (ls *links) greet(ctx context.Context, conn *transport.Conn, id ginnel.LinkID) (*link, error) {
	peer := conn.Peer().ID
	if !ls.await(ctx, conn, string(id)) {
		conn.Close(fmt.Errorf("%w: of %s", errUnexpected, peer))
		return nil, conn.Err()
	}
	own := &wire.Hello{Network: string(ls.r.netID), Boot: string(ls.r.boot), Link: string(id)}
	g := transport.Greeting{Self: string(ls.r.id), Hello: own}
	decides := string(ls.r.id) < peer
	if decides {
		own.Connection = ls.registry.Next()
		g.Decide = func(ctx context.Context, hello *wire.Hello) *wire.Verdict {
			named := cmp.Or(string(id), hello.GetLink())
			if named != cmp.Or(hello.GetLink(), named) || !ls.await(ctx, conn, named) {
				return transport.Refuse(ginnel.RouterErrInvalidLinkDestination, fmt.Sprintf("link %q is not expected here", named))
			}
			return ls.registry.Admit(ctx, ginnel.LinkID(named), own.GetConnection(), conn)
		}
	}
	a, err := conn.Handshake(ctx, g)
	if err != nil {
		return nil, err
	}
	l := newLink(ls, conn, cmp.Or(id, ginnel.LinkID(a.Hello.GetLink())), a)
	if !decides {
		if !ls.expects(conn, string(l.id)) || l.id == "" {
			conn.Close(fmt.Errorf("%w: %q of %s", errUnexpected, l.id, peer))
			return nil, conn.Err()
		}
		if !ls.registry.Adopt(l.id, string(l.peerBoot), a.Connection, conn) {
			return nil, conn.Err()
		}
	}
	return l, ls.add(l)
}

// add makes l the connection of its link, unless it has ended: then another one may be
// that already.
func (ls *links) add(l *link) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	t := ls.targets[l.id]
	if t == nil {
		l.conn.Close(errUnlinked)
	}
	if err := l.conn.Err(); err != nil {
		return err
	}
	if before := ls.up[l.id]; before != nil {
		l.turn.after = before.turn.over
	}
	ls.up[l.id] = l
	ls.reportLocked(l, func(s *wire.LinkState) { s.Up, s.StaticCost = true, t.GetStaticCost() })
	ls.news.happened()
	return nil
}

// serve runs a connection of a link to its end.
func (ls *links) serve(ctx context.Context, l *link) {
	log := ls.r.log.With("link_id", string(l.id), "connection", l.connection)
	log.Info("link up", "peer_boot", string(l.peerBoot))
	ls.began(l)
	l.turn.await(ctx)
	ls.r.circuits.linkUp(l)
	err := l.conn.Run(ctx, l)
	ls.gone(l)
	ls.r.circuits.linkGone(l)
	l.turn.end()
	log.Info("link down", "err", err)
}

// gone reports a link down, unless another connection has taken its place.
func (ls *links) gone(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.endedLocked(l)
	if ls.up[l.id] != l {
		return
	}
	delete(ls.up, l.id)
	ls.reportLocked(l, func(s *wire.LinkState) { s.Up, s.Measured, s.RttNs = false, false, 0 })
}

// measured reports a link's published round-trip time.
func (ls *links) measured(l *link, rtt time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.up[l.id] == l {
		ls.reportLocked(l, func(s *wire.LinkState) { s.Measured, s.RttNs = true, rtt.Nanoseconds() })
	}
}

// reportLocked changes a link's state and reports it.
func (ls *links) reportLocked(l *link, change func(*wire.LinkState)) {
	s := proto.CloneOf(l.state)
	change(s)
	l.state = s
	ls.r.report.link(s)
	ls.r.changes.happened()
}

// close ends a connection of a link by its number.
func (ls *links) close(id ginnel.LinkID, number uint64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.up[id]; l != nil && l.number == number {
		l.conn.Close(errLate)
	}
}

// survivor gives the link's connection that the deciding end numbers so; its
// ACCEPT may still be on the way. Nil: there is none.
func (ls *links) survivor(ctx context.Context, id ginnel.LinkID, connection uint64) *link {
	ctx, cancel := context.WithTimeout(ctx, survivorWait)
	defer cancel()
	for {
		news := ls.news.next()
		if l := ls.get(id); l != nil && l.connection == connection {
			return l
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil
		}
	}
}

// get gives the link that is up by that id; nil when there is none.
func (ls *links) get(id ginnel.LinkID) *link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.up[id]
}

// status gives all links that shall be.
func (ls *links) status() []LinkStatus {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	list := make([]LinkStatus, 0, len(ls.targets))
	for id, t := range ls.targets {
		s := LinkStatus{ID: id, Peer: ginnel.RouterID(t.GetPeer())}
		if l := ls.up[id]; l != nil {
			s.Up, s.Measured, s.RTT = true, l.state.GetMeasured(), time.Duration(l.state.GetRttNs())
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b LinkStatus) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
