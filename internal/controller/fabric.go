// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// publishEvery is the least time between two snapshots of the topology, unless
// something went up or down.
const publishEvery = 100 * time.Millisecond

// fabric is what routers have reported: the soft state. One mutex guards it;
// nobody does anything but look and change while holding it. Its own goroutine
// publishes the topology.
//
//  1. What a router reported is there as long as its channel, and only what
//     came over that channel.
//  2. A router counts (for paths, terminators) once its whole state is in.
//  3. binds and circuits hold exactly the rows of the routers.
type fabric struct {
	c        *Controller
	snapshot atomic.Pointer[path.Snapshot]
	crossing atomic.Pointer[path.Snapshot] // see throughQuiesced
	urgent   signal                        // something went up or down
	soon     signal                        // a cost moved

	mu       sync.Mutex
	routers  map[ginnel.RouterID]*softState
	binds    map[ginnel.ServiceID]map[ginnel.TerminatorID]*terminatorRow
	circuits map[ginnel.CircuitID]map[*endpointRow]struct{}
	ways     ways
	// peers is what routers said of themselves the last time: where links lead
	// to does not change because a ctrl channel ends.
	peers map[ginnel.RouterID]*wire.RouterHello
}

// softState is all that one channel has brought.
type softState struct {
	ch       *channel
	complete bool // STATE_END is in
	// told is the revision of the store as of which the router was told over ch what
	// it hosts; 0: not yet.
	told        store.Revision
	links       map[ginnel.LinkID]ginnel.Link
	terminators map[ginnel.TerminatorID]*terminatorRow
	edges       map[uint64]*edgeRow
	endpoints   map[endpointKey]*endpointRow
	loads       loads
}

func newFabric(c *Controller) *fabric {
	f := &fabric{
		c:        c,
		urgent:   newSignal(),
		soon:     newSignal(),
		routers:  make(map[ginnel.RouterID]*softState),
		binds:    make(map[ginnel.ServiceID]map[ginnel.TerminatorID]*terminatorRow),
		circuits: make(map[ginnel.CircuitID]map[*endpointRow]struct{}),
		ways:     make(ways),
		peers:    make(map[ginnel.RouterID]*wire.RouterHello),
	}
	f.snapshot.Store(path.New(ginnel.MinRouterCost, nil, nil))
	f.crossing.Store(f.snapshot.Load())
	return f
}

// topology gives the newest snapshot. It never waits.
func (f *fabric) topology() *path.Snapshot { return f.snapshot.Load() }

// throughQuiesced gives the newest snapshot in which paths may cross quiesced
// routers. It never waits.
func (f *fabric) throughQuiesced() *path.Snapshot { return f.crossing.Load() }

// run publishes snapshots until ctx ends.
func (f *fabric) run(ctx context.Context) {
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	var last time.Time
	waiting := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.urgent:
		case <-f.soon:
			if wait := publishEvery - time.Since(last); wait > 0 {
				if !waiting {
					waiting = true
					timer.Reset(wait)
				}
				continue
			}
		case <-timer.C:
		}
		waiting = false
		timer.Stop()
		f.publish()
		last = time.Now()
	}
}

// publish makes the snapshot of what is known now.
func (f *fabric) publish() {
	table := f.c.store.View().Routers()
	var crossing, routers []path.Router
	quiesced := false
	for id := range f.complete() {
		if r, ok := table.Get(id); ok && !r.Disabled {
			at := path.Router{ID: id, Cost: r.Cost, NoTraversal: r.NoTraversal, Connected: true}
			crossing = append(crossing, at)
			at.NoTraversal = r.NoTraversal || r.Quiesced
			routers = append(routers, at)
			quiesced = quiesced || r.Quiesced
		}
	}
	links := f.links()
	now := path.New(ginnel.MinRouterCost, routers, links)
	through := now
	if quiesced {
		through = path.New(ginnel.MinRouterCost, crossing, links)
	}
	f.crossing.Store(through)
	f.snapshot.Store(now)
	f.c.hints.kick()
}

// complete gives the routers that count.
func (f *fabric) complete() map[ginnel.RouterID]*channel {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make(map[ginnel.RouterID]*channel, len(f.routers))
	for id, s := range f.routers {
		if s.complete {
			ids[id] = s.ch
		}
	}
	return ids
}

// links gives every reported link once, by id. It is up when both ends say so;
// the lower end's measure counts, the other's while there is none.
func (f *fabric) links() []ginnel.Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := make(map[ginnel.LinkID]ginnel.Link)
	for _, s := range f.routers {
		for id, l := range s.links {
			if _, ok := seen[id]; !ok {
				seen[id] = f.joinLocked(l)
			}
		}
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b ginnel.Link) int { return cmp.Compare(a.ID, b.ID) })
}

// joinLocked gives a link as its two ends together report it.
func (f *fabric) joinLocked(l ginnel.Link) ginnel.Link {
	low, lowKnown := f.endLocked(l.A, l.ID)
	high, highKnown := f.endLocked(l.B, l.ID)
	joined := low
	if !lowKnown || !low.Measured && high.Measured {
		joined = high
	}
	joined.Up = lowKnown && highKnown && low.Up && high.Up
	if lowKnown {
		joined.StaticCost = low.StaticCost
	}
	return joined
}

func (f *fabric) endLocked(router ginnel.RouterID, id ginnel.LinkID) (ginnel.Link, bool) {
	s := f.routers[router]
	if s == nil || !s.complete {
		return ginnel.Link{}, false
	}
	l, ok := s.links[id]
	return l, ok
}

// begin makes room for what ch will bring, in place of what an older channel
// of the router has brought.
func (f *fabric) begin(ch *channel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(ch.router)
	f.peers[ch.router] = ch.hello
	f.routers[ch.router] = &softState{
		ch:          ch,
		links:       make(map[ginnel.LinkID]ginnel.Link),
		terminators: make(map[ginnel.TerminatorID]*terminatorRow),
		edges:       make(map[uint64]*edgeRow),
		endpoints:   make(map[endpointKey]*endpointRow),
		loads:       loads{links: make(map[ginnel.LinkID]linkLoad), circuits: make(map[ginnel.CircuitID]circuitLoad)},
	}
}

// forget drops what ch has brought, if nothing newer has taken its place.
func (f *fabric) forget(ch *channel) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.routers[ch.router]; s != nil && s.ch == ch {
		f.dropLocked(ch.router)
	}
}

// forgetPeer drops what a deleted router said of itself.
func (f *fabric) forgetPeer(id ginnel.RouterID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.peers, id)
}

func (f *fabric) dropLocked(id ginnel.RouterID) {
	s := f.routers[id]
	if s == nil {
		return
	}
	for _, t := range s.terminators {
		f.unbindLocked(t)
	}
	for _, e := range s.endpoints {
		f.unlistLocked(e)
	}
	delete(f.routers, id)
	f.urgent.fire()
}

// room reports whether a router may have as many rows as it does with a page.
func (f *fabric) room(ch *channel, page softPage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.routers[ch.router]
	if s == nil {
		return true
	}
	rows := len(s.terminators) + len(s.edges) + len(s.endpoints)
	return len(s.links)+len(page.links) <= maxLinks &&
		rows+len(page.terminators)+len(page.edges)+len(page.endpoints) <= maxRows
}

// apply puts a page of rows in, and reports whether there is a link now that
// was not there before. A page of an older channel changes nothing.
func (f *fabric) apply(ch *channel, page softPage) (linked bool) {
	gone, ended, linked := f.applied(ch, page)
	for _, id := range gone {
		f.c.circuits.linkGone(ch.router, id)
	}
	for _, end := range ended {
		f.c.circuits.over(end)
	}
	return linked
}

// applied is apply; it gives the links that were up and are no longer, and the
// last ends of circuits that have ended.
func (f *fabric) applied(ch *channel, page softPage) (gone []ginnel.LinkID, ended []*endpointRow, linked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.routers[ch.router]
	if s == nil || s.ch != ch {
		return nil, nil, false
	}
	for _, row := range page.links {
		old, known := s.links[row.ID]
		was, is := known && old.Up, row.Up && !row.removed
		linked = linked || !known && !row.removed
		if s.links[row.ID] = row.Link; row.removed {
			delete(s.links, row.ID)
		}
		switch {
		case was && !is:
			if !slices.Contains(gone, row.ID) {
				gone = append(gone, row.ID)
			}
			f.urgent.fire()
		case was != is, is && !old.Measured && row.Measured: // from the first sample on it is worth its price
			f.urgent.fire()
		default:
			f.soon.fire()
		}
	}
	for _, row := range page.terminators {
		f.putTerminatorLocked(s, row)
	}
	for _, row := range page.edges {
		row.judgement = new(judgement)
		if old := s.edges[row.connection]; old != nil && old.identity == row.identity && old.key == row.key {
			row.judgement = old.judgement
		}
		if s.edges[row.connection] = &row; row.removed {
			delete(s.edges, row.connection)
		}
	}
	for _, row := range page.endpoints {
		if last := f.putEndpointLocked(s, row); last != nil {
			ended = append(ended, last)
		}
	}
	if page.end && !s.complete {
		s.complete = true
		f.urgent.fire()
	}
	return gone, ended, linked
}

// putEndpointLocked puts an end of a circuit in or takes it away, and gives it if
// that was the last of a circuit: as it was, with what the router says at the end.
func (f *fabric) putEndpointLocked(s *softState, row *endpointRow) (last *endpointRow) {
	old := s.endpoints[row.endpointKey]
	if old != nil {
		f.unlistLocked(old)
		delete(s.endpoints, row.endpointKey)
	}
	if !row.removed {
		row.judgement = new(judgement)
		if old != nil && old.ticket == row.ticket {
			row.judgement = old.judgement
		}
		s.endpoints[row.endpointKey] = row
		f.listLocked(row)
		return nil
	}
	was := cmp.Or(old, row)
	if was.ticket == nil || len(f.circuits[row.circuit]) > 0 {
		return nil
	}
	end := *was
	end.sent, end.received, end.code = row.sent, row.received, row.code
	return &end
}

func (f *fabric) putTerminatorLocked(s *softState, row *terminatorRow) {
	row.judgement = new(judgement)
	if old := s.terminators[row.id]; old != nil {
		f.unbindLocked(old)
		row.judgement = old.judgement
		delete(s.terminators, row.id)
	}
	if row.removed {
		return
	}
	s.terminators[row.id] = row
	if row.bound {
		of := f.binds[row.spec.Service]
		if of == nil {
			of = make(map[ginnel.TerminatorID]*terminatorRow)
			f.binds[row.spec.Service] = of
		}
		of[row.id] = row
	}
}

func (f *fabric) unbindLocked(row *terminatorRow) {
	if !row.bound {
		return
	}
	of := f.binds[row.spec.Service]
	delete(of, row.id)
	if len(of) == 0 {
		delete(f.binds, row.spec.Service)
	}
}

func (f *fabric) listLocked(row *endpointRow) {
	of := f.circuits[row.circuit]
	if of == nil {
		of = make(map[*endpointRow]struct{})
		f.circuits[row.circuit] = of
	}
	of[row] = struct{}{}
	f.ways.list(of)
}

func (f *fabric) unlistLocked(row *endpointRow) {
	of := f.circuits[row.circuit]
	delete(of, row)
	f.ways.drop(row)
	f.ways.list(of)
	if len(of) == 0 {
		delete(f.circuits, row.circuit)
	}
}

// terminator gives a terminator as its router reported it; nil: it did not.
// Rows are not changed once they are in, but for their judgement.
func (f *fabric) terminator(router ginnel.RouterID, id ginnel.TerminatorID) *terminatorRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.routers[router]; s != nil {
		return s.terminators[id]
	}
	return nil
}

// endpoint gives an end of a circuit as its router reported it; nil: it did not.
func (f *fabric) endpoint(router ginnel.RouterID, key endpointKey) *endpointRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.routers[router]; s != nil {
		return s.endpoints[key]
	}
	return nil
}

// endpoints gives the known ends of a circuit, at whatever routers, in no order.
func (f *fabric) endpoints(id ginnel.CircuitID) []*endpointRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.circuits[id]))
}

// peer gives what a router said of itself the last time; nil: nothing yet.
func (f *fabric) peer(id ginnel.RouterID) *wire.RouterHello {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peers[id]
}

// told notes that the router of ch was told over it what it hosts, as of a revision.
func (f *fabric) told(ch *channel, revision store.Revision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.routers[ch.router]; s != nil && s.ch == ch {
		s.told = revision
	}
}

// knows reports whether the router has a stored terminator before it hears anything
// that is sent to it from now on.
func (s *softState) knows(r rules, id ginnel.TerminatorID) bool {
	stored, _ := r.Terminators().Row(id)
	return s.terminators[id] != nil || stored.Revision <= s.told
}

// candidates gives the terminators of a service: the stored ones, and those
// that SDKs bound and may, with a certificate that is still valid. Whether they
// are online and at what distance is left to whoever knows the ingress router.
func (f *fabric) candidates(r rules, service ginnel.Service) []terminator.Candidate {
	at := time.Now()
	var list []terminator.Candidate
	stored := r.TerminatorsOfService(service.ID)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range stored {
		c := terminator.Candidate{Terminator: t}
		if s := f.routers[t.Router]; s != nil {
			if row := s.terminators[t.ID]; row != nil {
				c = costed(t, row, at)
			}
			c.Untold = !s.knows(r, t.ID)
		}
		c.Quiesced = r.quiesced(t.Router)
		list = append(list, c)
	}
	for _, row := range f.binds[service.ID] {
		if s := f.routers[row.spec.Router]; s != nil && s.complete && !at.After(row.ends) && row.allowed(r, service) == nil {
			c := costed(row.spec, row, at)
			c.Quiesced = r.quiesced(row.spec.Router)
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b terminator.Candidate) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func costed(t ginnel.Terminator, row *terminatorRow, at time.Time) terminator.Candidate {
	if row.unhealthy {
		t.Precedence = ginnel.Failed
	}
	return terminator.Candidate{Terminator: t, Dynamic: row.dynamic.Cost(at)}
}

// allowed reports why a bound terminator is no candidate, or nil: its host must
// be enabled, have the key that signed, and be let to host the service there.
func (t *terminatorRow) allowed(r rules, service ginnel.Service) *ginnel.DialError {
	host, ok := r.Identities().Get(t.spec.Host)
	if !ok || host.Disabled || host.Key != t.key {
		return ginnel.Errorf(ginnel.NotAuthenticated, "identity %s is not known, disabled, or has another key", t.spec.Host)
	}
	router, ok := r.Routers().Get(t.spec.Router)
	if !ok {
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s is not known", t.spec.Router)
	}
	return r.policies.AuthorizeBind(host, service, router)
}

// allPeers gives what every router said of itself the last time.
func (f *fabric) allPeers() map[ginnel.RouterID]*wire.RouterHello {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.peers)
}

// edgesOf gives the routers to which identities are connected, by id.
func (f *fabric) edgesOf() map[ginnel.IdentityID][]ginnel.RouterID {
	f.mu.Lock()
	defer f.mu.Unlock()
	where := make(map[ginnel.IdentityID][]ginnel.RouterID)
	for _, id := range slices.Sorted(maps.Keys(f.routers)) {
		for _, e := range f.routers[id].edges {
			if list := where[e.identity]; len(list) == 0 || list[len(list)-1] != id {
				where[e.identity] = append(list, id)
			}
		}
	}
	return where
}

// circuitCount gives how many circuits have an end that is known.
func (f *fabric) circuitCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.circuits)
}

// allCircuits gives the known ends of every circuit.
func (f *fabric) allCircuits() [][]*endpointRow {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([][]*endpointRow, 0, len(f.circuits))
	for _, ends := range f.circuits {
		all = append(all, slices.Collect(maps.Keys(ends)))
	}
	return all
}
