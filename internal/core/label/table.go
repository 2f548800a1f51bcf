// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// IdleTime is how long a row may be without a frame.
const IdleTime = 180 * time.Second

// Other times of the table.
const (
	restTime     = 30 * time.Second
	routeSlack   = 2 * time.Second // after a Route's deadline
	endedTime    = 10 * time.Second
	peerGoneTime = 60 * time.Second
	checkAgain   = 10 * time.Second // when a Check was not answered
)

// Config bounds a table. Zero values mean the defaults.
type Config struct {
	// Slots is the number of slots, slot 0 included; 0: MaxSlots.
	Slots int
	// GrantSize is how many unused labels a ctrl channel is kept at; 0: 4096,
	// which is enough for a burst of 2,000 circuits within a round trip. It is
	// topped up when it has used half of them.
	GrantSize int
}

// Table is the machine. See the package comment for the lives of slots and rows.
//
// Invariants: a slot is used by at most one side of one row; a row's side is
// listed at its peer exactly once; every row has a timer; after a Step the Deadline
// is zero or later than now; the same events give the same actions.
type Table struct {
	cfg      Config
	slots    slots
	channels []*channel // in the order in which they came up
	peers    map[string]*peer
	rows     map[RowID]*row
	circuits map[ginnel.CircuitID]*row // newest generation first, by older
	timers   timers
	lastRow  RowID
	actions  []Action
}

// row is one generation of a circuit's path through this router.
type row struct {
	id         RowID
	circuit    ginnel.CircuitID
	generation uint32
	ends       [2]end
	older      *row // of the same circuit
	timer      timer
	ended      bool
}

// end is one side of a row.
type end struct {
	peer   *peer // nil: Local
	pos    int32 // in the peer's sides
	arrive Label // 0: Local
	send   Label
	kind   Kind
}

// up reports whether frames can go to this side.
func (e *end) up() bool { return e.peer == nil || e.peer.conn != 0 }

// side names one side of a row.
type side struct {
	row *row
	i   int
}

// peer is a neighbour: a link or an edge connection, whatever its connection.
type peer struct {
	key   string
	boot  ginnel.BootID
	conn  uint64 // 0: down
	sides []side
	timer timer // armed while down
}

// NewTable gives an empty table. rng draws where slots' generations begin.
func NewTable(cfg Config, rng *rand.Rand) *Table {
	if cfg.Slots == 0 {
		cfg.Slots = MaxSlots
	}
	if cfg.GrantSize == 0 {
		cfg.GrantSize = 4096
	}
	return &Table{
		cfg:      cfg,
		slots:    slots{rng: rng, made: make([]slot, 1), limit: min(cfg.Slots, MaxSlots)},
		peers:    make(map[string]*peer),
		rows:     make(map[RowID]*row),
		circuits: make(map[ginnel.CircuitID]*row),
	}
}

// Step applies one event. The actions are valid until the next Step.
func (t *Table) Step(now time.Time, ev Event) []Action {
	clear(t.actions)
	t.actions = t.actions[:0]
	switch ev := ev.(type) {
	case ChannelUp:
		t.channels = append(t.channels, &channel{id: ev.Channel})
	case ChannelDown:
		t.channelDown(now, ev.Channel)
	case PeerUp:
		t.peerUp(now, ev)
	case PeerDown:
		if p := t.peers[ev.Peer]; p != nil && p.conn == ev.Conn && p.conn != 0 {
			t.peerDown(now, p)
		}
	case Route:
		t.route(now, ev)
	case Unroute:
		if r := t.find(ev.Circuit, ev.Generation); r != nil {
			t.drop(now, r, Unrouted)
		}
	case Moved:
		if r := t.rows[ev.Row]; r != nil {
			for r.older != nil {
				t.drop(now, r.older, Left)
			}
		}
	case Seen:
		t.seen(now, ev)
	case Ended:
		if r := t.rows[ev.Row]; r != nil && !r.ended {
			r.ended = true
			t.timers.set(&r.timer, now.Add(endedTime))
		}
	case Tick:
	}
	t.expire(now)
	t.grant(now)
	return t.actions
}

// Deadline gives when a Tick is due; zero: not by time alone.
func (t *Table) Deadline() time.Time {
	at := time.Time{}
	if len(t.timers) > 0 {
		at = t.timers[0].at
	}
	if slices.ContainsFunc(t.channels, t.short) {
		if next := t.slots.next(); at.IsZero() || !next.IsZero() && next.Before(at) {
			at = next
		}
	}
	return at
}

// Row is a row as it stands.
type Row struct {
	ID         RowID
	Circuit    ginnel.CircuitID
	Generation uint32
	Ends       [2]Entry
}

// Rows gives all rows, oldest first.
func (t *Table) Rows() []Row {
	rows := make([]Row, 0, len(t.rows))
	for _, r := range t.rows {
		rows = append(rows, Row{r.id, r.circuit, r.generation, r.entries()})
	}
	slices.SortFunc(rows, func(a, b Row) int { return int(a.ID) - int(b.ID) })
	return rows
}

// Len gives the number of rows.
func (t *Table) Len() int { return len(t.rows) }

func (t *Table) do(a Action) { t.actions = append(t.actions, a) }

func (t *Table) channel(id uint64) *channel {
	for _, c := range t.channels {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (t *Table) channelDown(now time.Time, id uint64) {
	i := slices.IndexFunc(t.channels, func(c *channel) bool { return c.id == id })
	if i < 0 {
		return
	}
	for _, l := range t.channels[i].unused {
		t.slots.free(now, l)
	}
	t.channels = slices.Delete(t.channels, i, i+1)
}

// short reports whether a channel has used half of its labels.
func (t *Table) short(c *channel) bool { return len(c.unused) <= t.cfg.GrantSize/2 }

// grant tops up the channels that are short.
func (t *Table) grant(now time.Time) {
	for _, c := range t.channels {
		if !t.short(c) {
			continue
		}
		if labels := t.slots.grant(now, c, t.cfg.GrantSize); len(labels) > 0 {
			t.do(Grant{c.id, labels})
		}
	}
}

// expire does what time has made due.
func (t *Table) expire(now time.Time) {
	for len(t.timers) > 0 && !now.Before(t.timers[0].at) {
		tm := t.timers[0]
		if tm.peer != nil {
			t.peerGone(now, tm.peer)
			continue
		}
		t.timers.set(tm, now.Add(checkAgain))
		t.do(Check{tm.row.id})
	}
}

// timer is an instant at which something of a row or a peer is due.
type timer struct {
	at    time.Time
	index int // in the heap, from 1; 0: not armed
	row   *row
	peer  *peer
}

// timers is a heap, the earliest first; of equal ones the older row.
type timers []*timer

func (h *timers) set(tm *timer, at time.Time) {
	tm.at = at
	if tm.index > 0 {
		heap.Fix(h, tm.index-1)
	} else {
		heap.Push(h, tm)
	}
}

func (h *timers) stop(tm *timer) {
	if tm.index > 0 {
		heap.Remove(h, tm.index-1)
	}
}

// Len is for package heap.
func (h timers) Len() int { return len(h) }

// Less is for package heap.
func (h timers) Less(i, j int) bool {
	a, b := h[i], h[j]
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	if a.row != nil && b.row != nil {
		return a.row.id < b.row.id
	}
	if a.peer != nil && b.peer != nil {
		return a.peer.key < b.peer.key
	}
	return a.peer != nil
}

// Swap is for package heap.
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push is for package heap.
func (h *timers) Push(x any) {
	tm := x.(*timer)
	tm.index = len(*h) + 1
	*h = append(*h, tm)
}

// Pop is for package heap.
func (h *timers) Pop() any {
	old := *h
	tm := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	tm.index = 0
	return tm
}
