// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// configDelay lies between two rounds: it gathers changes that come together.
	configDelay = 50 * time.Millisecond
	// pageBytes is how much of a list goes into one page: less than a frame, with
	// room for a signature and what is around it.
	pageBytes = 12 << 10
	// maxPeerAddresses bounds the link addresses of a router that others are told.
	maxPeerAddresses = 16
)

// configs tells each router what it shall do: whom to link with, and what to
// host. Its goroutine owns sent.
//
// A configuration has the revision of the store that it was made from and, for
// the order of those with the same one, the second in which it was told, raised
// by one where that would repeat. So what the newer store says wins, whichever
// controller says it; and at equal revisions of the store (when only an address
// changed) the later word.
type configs struct {
	c     *Controller
	dirty signal
	sent  map[ginnel.RouterID]sentConfig

	mu     sync.Mutex
	linked bool                         // links may have changed, of any router
	hosts  map[ginnel.RouterID]struct{} // whose terminators have
}

type sentConfig struct {
	ch       *channel
	links    [sha256.Size]byte // digest of them alone
	digest   [sha256.Size]byte
	revision store.Revision
	told     int64
}

func newConfigs(c *Controller) *configs {
	return &configs{c: c, dirty: newSignal(), sent: make(map[ginnel.RouterID]sentConfig), hosts: make(map[ginnel.RouterID]struct{})}
}

// kick says that some router may have to be told of other links, or that one
// has reported.
func (cs *configs) kick() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.linked = true
	cs.dirty.fire()
}

// terminator takes a change of a stored terminator.
func (cs *configs) terminator(change store.Change) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, record := range []any{change.Old, change.New} {
		if t, ok := record.(ginnel.Terminator); ok {
			cs.hosts[t.Router] = struct{}{}
		}
	}
	cs.dirty.fire()
}

// take gives what has changed since the last time.
func (cs *configs) take() (linked bool, hosts map[ginnel.RouterID]struct{}) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	linked, hosts = cs.linked, cs.hosts
	cs.linked, cs.hosts = false, make(map[ginnel.RouterID]struct{})
	return linked, hosts
}

func (cs *configs) run(ctx context.Context) {
	var plan map[ginnel.RouterID][]*wire.LinkTarget
	for {
		select {
		case <-ctx.Done():
			return
		case <-cs.dirty:
		}
		// At once: who was told that a terminator is made may dial it.
		linked, hosts := cs.take()
		view := cs.c.store.View()
		if linked {
			plan = cs.c.linkPlan(view)
		}
		cs.sendAll(view, plan, hosts)
		if !pause(ctx, configDelay) {
			return
		}
	}
}

// sendAll sends every router that has reported its configuration, unless it has
// it: its links are the same, and it is not one of those with other terminators.
func (cs *configs) sendAll(view *store.View, plan map[ginnel.RouterID][]*wire.LinkTarget, hosts map[ginnel.RouterID]struct{}) {
	complete := cs.c.fabric.complete()
	for id := range cs.sent {
		if complete[id] == nil && cs.c.channels.get(id) == nil {
			// Its revisions go on by time, should it come back.
			delete(cs.sent, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(complete)) {
		last := cs.sent[id]
		now := sentConfig{ch: complete[id], links: digest(configPages(plan[id], nil))}
		_, hosting := hosts[id]
		if last.ch == now.ch && last.links == now.links && !hosting {
			continue
		}
		pages := configPages(plan[id], view.TerminatorsOfRouter(id))
		now.digest = digest(pages)
		if last.ch == now.ch && last.digest == now.digest {
			cs.c.fabric.told(now.ch, view.Revision())
			continue
		}
		now.revision, now.told = max(view.Revision(), last.revision), time.Now().Unix()
		if now.revision == last.revision {
			now.told = max(now.told, last.told+1)
		}
		if cs.send(now, pages) {
			cs.sent[id] = now
			cs.c.fabric.told(now.ch, view.Revision())
		}
	}
}

func (cs *configs) send(to sentConfig, pages []*wire.RouterConfig) bool {
	for i, page := range pages {
		page.StoreRevision, page.Told, page.Revision = int64(to.revision), to.told, inOne(to.revision, to.told)
		page.Page, page.Pages = uint32(i), uint32(len(pages))
		if err := to.ch.conn.Notify(&wire.Message{Body: &wire.Message_RouterConfig{RouterConfig: page}}); err != nil {
			// A router without its configuration is of no use: begin anew.
			to.ch.conn.Close(err)
			return false
		}
	}
	return true
}

// inOne gives both numbers in one, as routers took it that do not know the two.
// Where they do not fit it is the greatest, which they take as often as it comes.
func inOne(revision store.Revision, told int64) int64 {
	if revision > math.MaxInt32 {
		return math.MaxInt64
	}
	return int64(revision)<<32 | min(told, math.MaxUint32)
}

func digest(pages []*wire.RouterConfig) [sha256.Size]byte {
	h := sha256.New()
	for _, p := range pages {
		// Deterministic: no page has a map.
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		if err != nil {
			panic("BUG: a page of our own cannot be encoded: " + err.Error())
		}
		h.Write(raw)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// configPages cuts what one router shall do into pages; there is at least one.
func configPages(links []*wire.LinkTarget, terminators []ginnel.Terminator) []*wire.RouterConfig {
	page := new(wire.RouterConfig)
	pages := []*wire.RouterConfig{page}
	size := 0
	room := func(m proto.Message) *wire.RouterConfig {
		n := proto.Size(m) + 8
		if size+n > pageBytes {
			page, size = new(wire.RouterConfig), 0
			pages = append(pages, page)
		}
		size += n
		return page
	}
	for _, l := range links {
		p := room(l)
		p.Links = append(p.Links, l)
	}
	for _, t := range terminators {
		h := &wire.HostedTerminator{Id: string(t.ID), Service: string(t.Service), Address: string(t.Address), Check: healthCheck(t.Check)}
		p := room(h)
		p.Terminators = append(p.Terminators, h)
	}
	return pages
}

// healthCheck gives a terminator's check as its router is told it; nil: none.
func healthCheck(c *ginnel.Check) *wire.HealthCheck {
	if c == nil {
		return nil
	}
	full := c.WithDefaults()
	ms := func(d ginnel.Duration) uint32 { return uint32(time.Duration(d).Milliseconds()) }
	return &wire.HealthCheck{
		Kind: string(full.Kind), Path: full.Path, IntervalMs: ms(full.Interval), TimeoutMs: ms(full.Timeout),
		Failures: uint32(full.Failures), Successes: uint32(full.Successes),
	}
}

// planned is a link that shall be.
type planned struct {
	id        ginnel.LinkID
	low, high ginnel.RouterID
	cost      ginnel.Cost
}

// linkPlan gives for each router the links that it shall have, by id: the
// stored ones, and one between every two routers that share a link group. Of a
// router that has not said since our start what groups it is in, the links that
// its neighbours report stay.
func (c *Controller) linkPlan(view *store.View) map[ginnel.RouterID][]*wire.LinkTarget {
	peers := c.fabric.allPeers()
	usable := func(id ginnel.RouterID) bool {
		r, ok := view.Routers().Get(id)
		return ok && !r.Disabled
	}
	links := make(map[ginnel.LinkID]planned)
	add := func(id ginnel.LinkID, cost ginnel.Cost) {
		low, high, _, ok := id.Split()
		if _, known := links[id]; ok && !known && usable(low) && usable(high) {
			links[id] = planned{id, low, high, cost}
		}
	}
	for spec := range view.Links().All() {
		cost := spec.StaticCost
		if cost == 0 {
			cost = ginnel.DefaultLinkCost
		}
		add(spec.ID(), cost)
	}
	for _, members := range groupMembers(peers) {
		for i, a := range members {
			for _, b := range members[i+1:] {
				add(ginnel.MakeLinkID(a, b, ""), ginnel.DefaultLinkCost)
			}
		}
	}
	for _, l := range c.fabric.links() {
		if peers[l.A] == nil || peers[l.B] == nil {
			add(l.ID, l.StaticCost)
		}
	}
	plan := make(map[ginnel.RouterID][]*wire.LinkTarget)
	for _, id := range slices.Sorted(maps.Keys(links)) {
		l := links[id]
		plan[l.low] = append(plan[l.low], target(view, l, l.high, peers))
		plan[l.high] = append(plan[l.high], target(view, l, l.low, peers))
	}
	return plan
}

// target gives a link as the router at its other end than peer is told it. The
// higher id dials, unless the lower is known to have no address.
func target(view *store.View, l planned, peer ginnel.RouterID, peers map[ginnel.RouterID]*wire.RouterHello) *wire.LinkTarget {
	dialer := l.high
	if low := peers[l.low]; low != nil && len(linkAddresses(low)) == 0 {
		dialer = l.low
	}
	t := &wire.LinkTarget{Id: string(l.id), Peer: string(peer), StaticCost: int64(l.cost), Dial: dialer != peer}
	if t.Dial {
		t.Addresses = linkAddresses(peers[peer])
	}
	if r, ok := view.Routers().Get(peer); ok {
		t.Key = r.Key // not enrolled: empty, and nobody is taken for it
	}
	return t
}

// linkAddresses gives the usable link addresses of a router, in its order.
func linkAddresses(hello *wire.RouterHello) []string {
	var list []string
	for _, a := range hello.GetLinkAddresses() {
		if _, err := ginnel.ParseAddress(a, false, "tls"); err == nil && len(list) < maxPeerAddresses {
			list = append(list, a)
		}
	}
	return list
}

// groupMembers gives the routers of each link group, by id.
func groupMembers(peers map[ginnel.RouterID]*wire.RouterHello) [][]ginnel.RouterID {
	byGroup := make(map[string][]ginnel.RouterID)
	for id, hello := range peers {
		groups := slices.Clone(hello.GetLinkGroups())
		slices.Sort(groups)
		for _, g := range slices.Compact(groups) {
			byGroup[g] = append(byGroup[g], id)
		}
	}
	var all [][]ginnel.RouterID
	for _, members := range byGroup {
		slices.SortFunc(members, cmp.Compare[ginnel.RouterID])
		all = append(all, members)
	}
	return all
}
