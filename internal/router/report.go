// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// gatherTime is how long changes are gathered that are not urgent, and how
	// long a channel is left alone whose queue is full.
	gatherTime = 100 * time.Millisecond
	// pageSize bounds a page of State, with room for the envelope.
	pageSize = wire.MaxPayload - 64
	// maxUnsent bounds what waits for one channel. The channel that would need
	// more is closed: it comes back and gets the whole state.
	maxUnsent = 1 << 17
)

var errUnsent = errors.New("too many changes wait to be reported")

// itemKind says of what kind an item of state is.
type itemKind uint8

const (
	linkItem itemKind = iota
	terminatorItem
	edgeItem
	endpointItem
)

// itemKey names an item of state; a newer report of the same key replaces an
// older one that was not sent yet.
type itemKey struct {
	kind   itemKind
	id     string
	number uint64 // edges
	host   bool   // endpoints
}

// reporter owns what is reported to controllers: it holds each item's newest
// state, sends all of it over a new channel, and what changed to every channel.
// Its methods may be called from any goroutine and never wait. Messages that it
// was given must not be changed any more.
//
// Invariant: what an outbox holds for a key is nil or a message with removed
// set; for nil the key is in items.
type reporter struct {
	log  *slog.Logger
	most int // keys that wait for one channel
	wake chan struct{}

	mu    sync.Mutex
	items map[itemKey]proto.Message
	// loads of the terminators in items: what one costs falls by itself, so its
	// state is completed when it is sent.
	loads map[string]terminator.Dynamic
	outs  map[*ctrlChannel]*outbox
	due   time.Time // when to send; zero: nothing waits
}

// outbox is what waits to be sent over one channel.
type outbox struct {
	ch     *ctrlChannel
	unsent map[itemKey]proto.Message // nil: the newest of items; else a removal
	order  []itemKey                 // keys of unsent, oldest first
	first  bool                      // the whole state has not been sent yet
}

func newReporter(log *slog.Logger) *reporter {
	return &reporter{
		log:   log,
		most:  maxUnsent,
		wake:  make(chan struct{}, 1),
		items: make(map[itemKey]proto.Message),
		loads: make(map[string]terminator.Dynamic),
		outs:  make(map[*ctrlChannel]*outbox),
	}
}

// link reports a link. Up, down, the first measurement and its end go out at once.
func (rep *reporter) link(s *wire.LinkState) {
	rep.set(itemKey{kind: linkItem, id: s.GetId()}, s, s.GetRemoved(), func(old proto.Message) bool {
		was, ok := old.(*wire.LinkState)
		return !ok || s.GetRemoved() || was.GetUp() != s.GetUp() || was.GetMeasured() != s.GetMeasured()
	})
}

// terminator reports a terminator, of which s leaves open what load says. Bound,
// gone and health go out at once.
func (rep *reporter) terminator(s *wire.TerminatorState, load terminator.Dynamic) {
	rep.mu.Lock()
	if rep.loads[s.GetId()] = load; s.GetRemoved() {
		delete(rep.loads, s.GetId())
	}
	rep.mu.Unlock()
	rep.set(itemKey{kind: terminatorItem, id: s.GetId()}, s, s.GetRemoved(), func(old proto.Message) bool {
		was, ok := old.(*wire.TerminatorState)
		return !ok || s.GetRemoved() || was.GetUnhealthy() != s.GetUnhealthy()
	})
}

// edge reports an edge connection, by its number, at once.
func (rep *reporter) edge(s *wire.EdgeState) {
	rep.set(itemKey{kind: edgeItem, number: s.GetConnection()}, s, s.GetRemoved(), func(proto.Message) bool { return true })
}

// endpoint reports one end of a circuit. A new Attach goes out at once.
func (rep *reporter) endpoint(s *wire.EndpointState) {
	rep.set(itemKey{kind: endpointItem, id: s.GetCircuit(), host: s.GetHost()}, s, s.GetRemoved(), func(old proto.Message) bool {
		was, _ := old.(*wire.EndpointState)
		return s.GetAttach() != nil && was.GetAttach() != s.GetAttach()
	})
}

// set takes the newest state of an item for all channels. urgent is asked with
// the state before, nil: there was none.
func (rep *reporter) set(key itemKey, s proto.Message, removed bool, urgent func(old proto.Message) bool) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	old := rep.items[key]
	wait := gatherTime
	if urgent(old) {
		wait = 0
	}
	var unsent proto.Message
	if removed {
		if old == nil {
			return
		}
		delete(rep.items, key)
		unsent = s
	} else {
		rep.items[key] = s
	}
	for _, o := range rep.outs {
		if o.put(key, unsent); len(o.order) > rep.most && !o.first {
			o.ch.conn.Close(errUnsent) // it gives up
		}
	}
	rep.dueLocked(time.Now().Add(wait))
}

// put notes that key is to be sent.
func (o *outbox) put(key itemKey, unsent proto.Message) {
	if _, waits := o.unsent[key]; !waits {
		o.order = append(o.order, key)
	}
	o.unsent[key] = unsent
}

// dueLocked makes the loop send at an instant at the latest.
func (rep *reporter) dueLocked(at time.Time) {
	if !rep.due.IsZero() && !at.Before(rep.due) {
		return
	}
	rep.due = at
	select {
	case rep.wake <- struct{}{}:
	default:
	}
}

// channelUp begins to report over a channel: the whole state, then changes.
func (rep *reporter) channelUp(ch *ctrlChannel) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	o := &outbox{ch: ch, first: true, unsent: make(map[itemKey]proto.Message, len(rep.items))}
	for key := range rep.items {
		o.put(key, nil)
	}
	rep.outs[ch] = o
	rep.dueLocked(time.Now())
}

// channelGone ends that.
func (rep *reporter) channelGone(ch *ctrlChannel) {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	delete(rep.outs, ch)
}

// run is the goroutine that sends.
func (rep *reporter) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		rep.mu.Lock()
		due := rep.due
		rep.mu.Unlock()
		switch left := time.Until(due); {
		case due.IsZero():
			timer.Stop()
		case left <= 0:
			rep.flush()
			continue
		default:
			timer.Reset(left)
		}
		select {
		case <-rep.wake:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// flush sends all that waits to every channel that takes it.
func (rep *reporter) flush() {
	rep.mu.Lock()
	rep.due = time.Time{}
	outs := make([]*outbox, 0, len(rep.outs))
	for _, o := range rep.outs {
		outs = append(outs, o)
	}
	rep.mu.Unlock()
	for _, o := range outs {
		for rep.sendPage(o) {
		}
	}
}

// sendPage sends one page over a channel and reports whether more waits that
// can be sent now.
func (rep *reporter) sendPage(o *outbox) bool {
	rep.mu.Lock()
	page, keys := rep.pageLocked(o)
	rep.mu.Unlock()
	if page == nil {
		return false
	}
	err := o.ch.conn.Notify(&wire.Message{Body: &wire.Message_State{State: page}})
	if err == nil {
		return true
	}
	if !errors.Is(err, transport.ErrQueueFull) {
		return false // the channel has ended, or ends; its reader says so
	}
	rep.mu.Lock()
	defer rep.mu.Unlock()
	o.putBack(keys, page)
	rep.dueLocked(time.Now().Add(gatherTime))
	return false
}

// sent is a key that was taken out of an outbox for a page.
type sent struct {
	key    itemKey
	unsent proto.Message
}

// pageLocked takes the next page out of an outbox; nil: there is none. The last
// page of the whole state carries the end of it.
func (rep *reporter) pageLocked(o *outbox) (*wire.State, []sent) {
	if len(o.order) == 0 && !o.first {
		return nil, nil
	}
	page := new(wire.State)
	var keys []sent
	size := 0
	for len(o.order) > 0 {
		key := o.order[0]
		unsent := o.unsent[key]
		item := unsent
		if item == nil {
			item = rep.items[key]
		}
		if t, ok := item.(*wire.TerminatorState); ok && !t.GetRemoved() {
			item = loaded(t, rep.loads[t.GetId()])
		}
		// Each item comes with a tag of one byte and a length of up to three.
		n := proto.Size(item) + 4
		if n > pageSize {
			rep.log.Error("state is too large to be reported", "err", fmt.Errorf("item %v of %d bytes", key, n))
		} else if size+n > pageSize {
			return page, keys
		} else {
			size += n
			appendItem(page, item)
			keys = append(keys, sent{key, unsent})
		}
		o.order = o.order[1:]
		delete(o.unsent, key)
	}
	o.order = nil
	page.End = o.first
	o.first = false
	if len(keys) == 0 && !page.End {
		return nil, nil
	}
	return page, keys
}

// loaded gives the state of a terminator with its load as it is now.
func loaded(t *wire.TerminatorState, d terminator.Dynamic) *wire.TerminatorState {
	load := d.Load(time.Now())
	return &wire.TerminatorState{
		Id: t.GetId(), Bind: t.GetBind(), Host: t.GetHost(), Checked: t.GetChecked(), Unhealthy: t.GetUnhealthy(),
		Circuits: uint32(load.Circuits), FailureCost: int64(load.FailureCost),
		FailureLeftMs: uint32((load.FailureLeft + time.Millisecond - 1) / time.Millisecond),
	}
}

func appendItem(page *wire.State, item proto.Message) {
	switch s := item.(type) {
	case *wire.LinkState:
		page.Links = append(page.Links, s)
	case *wire.TerminatorState:
		page.Terminators = append(page.Terminators, s)
	case *wire.EdgeState:
		page.Edges = append(page.Edges, s)
	case *wire.EndpointState:
		page.Endpoints = append(page.Endpoints, s)
	default:
		panic(fmt.Sprintf("BUG: state of type %T", item))
	}
}

// putBack puts the keys of a page that was not taken in front again. What
// changed meanwhile counts.
func (o *outbox) putBack(keys []sent, page *wire.State) {
	front := make([]itemKey, 0, len(keys)+len(o.order))
	for _, s := range keys {
		if _, newer := o.unsent[s.key]; !newer {
			front = append(front, s.key)
			o.unsent[s.key] = s.unsent
		}
	}
	o.order = append(front, o.order...)
	o.first = o.first || page.GetEnd()
}
