// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

// flight is a frame that someone may still send: the label and connection that a
// row once had, and whose row it was.
type flight struct {
	label Label
	conn  uint64
	row   RowID
	ended time.Time // when the row went; zero: it stands
}

// world is a router around a table: it keeps what a shell keeps, the array by
// slot, and beside it an oracle of ten obvious lines: every row ever installed.
type world struct {
	t        *rapid.T
	now      time.Time
	table    *Table
	array    map[uint32]*Entry // by slot
	owner    map[uint32]RowID
	ends     map[RowID]*[2]Entry
	born     map[RowID][2]int // boots of the neighbours when the row was made
	flights  []flight
	held     map[uint64][]Label // by channel, unused
	peers    map[string]uint64  // connection, 0: down
	boots    map[string]int
	lastConn uint64
	lastChan uint64
	chans    []uint64
	seen     map[RowID]time.Time
	live     []Install
	circuits int
}

func newWorld(t *rapid.T) *world {
	seed := rapid.Uint64().Draw(t, "seed")
	return &world{
		t: t, now: epoch(), lastConn: 100,
		table: NewTable(Config{Slots: 40, GrantSize: 6}, rand.New(rand.NewPCG(seed, 0))),
		array: map[uint32]*Entry{}, owner: map[uint32]RowID{}, ends: map[RowID]*[2]Entry{}, born: map[RowID][2]int{},
		held: map[uint64][]Label{}, peers: map[string]uint64{}, boots: map[string]int{},
		seen: map[RowID]time.Time{},
	}
}

func (w *world) step(ev Event) {
	var checks []RowID
	for _, a := range w.table.Step(w.now, ev) {
		switch a := a.(type) {
		case Grant:
			w.grant(a)
		case Install:
			w.install(a)
		case Clear:
			w.clear(a)
		case Rebind:
			w.rebind(a)
		case Check:
			checks = append(checks, a.Row)
		case Send:
			e := w.ends[a.Row][a.Side]
			if e.Kind != Local && e.Conn == 0 {
				w.t.Fatalf("control sent to side %d of row %d, which is down", a.Side, a.Row)
			}
		case Refuse:
		}
	}
	if at := w.table.Deadline(); len(checks) == 0 && !at.IsZero() && !at.After(w.now) {
		w.t.Fatalf("deadline %v is not after now", at)
	}
	for _, id := range checks {
		w.step(Seen{id, w.seen[id]})
	}
}

// grant checks that nobody has a granted label, nor had it a short time ago.
func (w *world) grant(a Grant) {
	if !slices.Contains(w.chans, a.Channel) {
		w.t.Fatalf("grant to channel %d, which has ended", a.Channel)
	}
	for _, l := range a.Labels {
		w.unique(l)
		w.held[a.Channel] = append(w.held[a.Channel], l)
	}
}

func (w *world) unique(l Label) {
	if l.Slot() == 0 {
		w.t.Fatalf("label %v is of slot 0", l)
	}
	for c, labels := range w.held {
		for _, other := range labels {
			if other.Slot() == l.Slot() {
				w.t.Fatalf("label %v is given out; channel %d has %v", l, c, other)
			}
		}
	}
	for _, f := range w.flights {
		if f.label.Slot() == l.Slot() && (f.ended.IsZero() || w.now.Sub(f.ended) < restTime) {
			w.t.Fatalf("label %v is given out; row %d has %v until %v", l, f.row, f.label, f.ended)
		}
		if f.label == l {
			w.t.Fatalf("label %v is given out again", l) // 4,096 uses do not happen here
		}
	}
}

func (w *world) install(a Install) {
	entries := a.Ends
	w.ends[a.Row] = &entries
	w.born[a.Row] = [2]int{w.boots[entries[0].Peer], w.boots[entries[1].Peer]}
	for i := range entries {
		e := &entries[i]
		if e.Kind == Local {
			continue
		}
		if e.Kind == Edge {
			w.unique(e.Arrive)
		}
		if w.array[e.Arrive.Slot()] != nil {
			w.t.Fatalf("row %d overwrites slot %d", a.Row, e.Arrive.Slot())
		}
		if e.Conn != w.peers[e.Peer] || e.Conn == 0 {
			w.t.Fatalf("row %d is on connection %d of %s, which has %d", a.Row, e.Conn, e.Peer, w.peers[e.Peer])
		}
		w.array[e.Arrive.Slot()], w.owner[e.Arrive.Slot()] = e, a.Row
		w.flights = append(w.flights, flight{label: e.Arrive, conn: e.Conn, row: a.Row})
	}
	w.live = append(w.live, a)
}

func (w *world) clear(a Clear) {
	for _, l := range a.Arrive {
		if l == 0 {
			continue
		}
		if w.owner[l.Slot()] != a.Row {
			w.t.Fatalf("row %d clears slot %d of row %d", a.Row, l.Slot(), w.owner[l.Slot()])
		}
		delete(w.array, l.Slot())
		delete(w.owner, l.Slot())
	}
	for i := range w.flights {
		if w.flights[i].row == a.Row {
			w.flights[i].ended = w.now
		}
	}
	w.live = slices.DeleteFunc(w.live, func(in Install) bool { return in.Row == a.Row })
}

func (w *world) rebind(a Rebind) {
	e := &w.ends[a.Row][a.Side]
	if e.Conn = a.Conn; a.Conn == 0 {
		return
	}
	if a.Conn != w.peers[e.Peer] {
		w.t.Fatalf("row %d is bound to connection %d of %s, which has %d", a.Row, a.Conn, e.Peer, w.peers[e.Peer])
	}
	if born := w.born[a.Row][a.Side]; born != w.boots[e.Peer] {
		w.t.Fatalf("row %d of life %d of %s is bound in its life %d", a.Row, born, e.Peer, w.boots[e.Peer])
	}
	w.flights = append(w.flights, flight{label: e.Arrive, conn: a.Conn, row: a.Row})
}

// frames sends every frame that anybody might still send, each also over every
// connection there is: it meets its own row or none.
func (w *world) frames() {
	for _, f := range w.flights {
		for _, conn := range append([]uint64{f.conn}, w.peers["r1"], w.peers["r2"], w.peers["a"], w.peers["b"]) {
			e := w.array[f.label.Slot()]
			if e == nil || !e.Takes(f.label, conn) {
				continue
			}
			if w.owner[f.label.Slot()] != f.row || e.Conn != conn {
				w.t.Fatalf("frame of row %d with %v over %d reaches row %d", f.row, f.label, conn, w.owner[f.label.Slot()])
			}
		}
	}
}

func (w *world) end(channel uint64, name string) (End, bool) {
	switch name {
	case "local":
		return End{Kind: Local}, true
	case "a", "b":
		return End{Kind: Edge, Peer: name}, true
	}
	labels := w.held[channel]
	if len(labels) == 0 {
		return End{}, false
	}
	i := rapid.IntRange(0, len(labels)-1).Draw(w.t, "label")
	e := End{Kind: Link, Peer: name, Arrive: labels[i], Send: 7}
	w.held[channel] = slices.Delete(labels, i, i+1)
	return e, true
}

func (w *world) act() {
	names := []string{"r1", "r2", "a", "b", "local"}
	name := func() string { return rapid.SampledFrom(names).Draw(w.t, "name") }
	switch what := rapid.IntRange(0, 99).Draw(w.t, "what"); {
	case what < 40 && len(w.chans) > 0:
		ev := Route{
			Channel: rapid.SampledFrom(w.chans).Draw(w.t, "channel"), Deadline: w.now.Add(time.Second),
			Circuit:    ginnel.CircuitID(fmt.Sprint(rapid.IntRange(0, w.circuits).Draw(w.t, "circuit"))),
			Generation: uint32(rapid.IntRange(0, 5).Draw(w.t, "generation")),
		}
		w.circuits = min(w.circuits+1, 30)
		for i := range ev.Ends {
			e, ok := w.end(ev.Channel, name())
			if !ok {
				return
			}
			ev.Ends[i] = e
		}
		w.step(ev)
	case what < 55 && len(w.live) > 0:
		in := rapid.SampledFrom(w.live).Draw(w.t, "row")
		if rapid.Bool().Draw(w.t, "moved") {
			w.step(Moved{in.Row})
		} else {
			w.step(Unroute{in.Circuit, in.Generation})
		}
	case what < 65:
		p := rapid.SampledFrom(names[:4]).Draw(w.t, "peer")
		if rapid.IntRange(0, 4).Draw(w.t, "reboot") == 0 {
			w.boots[p]++
		}
		w.lastConn++
		w.peers[p] = w.lastConn
		w.step(PeerUp{p, ginnel.BootID(fmt.Sprint(w.boots[p])), w.lastConn})
	case what < 70:
		p := rapid.SampledFrom(names[:4]).Draw(w.t, "peer")
		conn := w.peers[p]
		w.peers[p] = 0
		w.step(PeerDown{p, conn})
	case what < 74 && len(w.chans) < 2:
		w.lastChan++
		w.chans = append(w.chans, w.lastChan)
		w.step(ChannelUp{w.lastChan})
	case what < 76 && len(w.chans) > 0:
		i := rapid.IntRange(0, len(w.chans)-1).Draw(w.t, "channel")
		c := w.chans[i]
		w.chans = slices.Delete(w.chans, i, i+1)
		w.forget(c)
		w.step(ChannelDown{c})
	case what < 86 && len(w.live) > 0:
		w.seen[rapid.SampledFrom(w.live).Draw(w.t, "row").Row] = w.now
	case what < 88 && len(w.live) > 0:
		w.step(Ended{rapid.SampledFrom(w.live).Draw(w.t, "row").Row})
	default:
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(w.t, "ms")) * time.Millisecond)
		w.step(Tick{})
	}
}

// forget drops a channel's labels; a Route of another controller's circuit may
// carry them still, so their slots rest like those of rows.
func (w *world) forget(c uint64) {
	for _, l := range w.held[c] {
		w.flights = append(w.flights, flight{label: l, ended: w.now})
	}
	delete(w.held, c)
}

// account checks that each slot made is in exactly one place.
func (w *world) account() {
	s := &w.table.slots
	places := make([]int, len(s.made))
	for _, r := range s.queue[s.first:] {
		places[r.slot]++
	}
	for _, c := range w.table.channels {
		for _, l := range c.unused {
			places[l.Slot()]++
		}
	}
	for slot := range w.array {
		places[slot]++
	}
	for slot, n := range places[1:] {
		if n != 1 {
			w.t.Fatalf("slot %d is in %d places", slot+1, n)
		}
	}
	if len(w.live) != w.table.Len() || len(w.live) != len(w.table.Rows()) {
		w.t.Fatalf("%d rows, want %d", w.table.Len(), len(w.live))
	}
}

// TestL110_NoFrameReachesAnotherCircuit routes and unroutes at random for two
// controllers over four neighbours that break, return and restart.
func TestL110_NoFrameReachesAnotherCircuit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			w.act()
			w.account()
			w.frames()
		}
		// Left alone, all rows go and every slot is free again.
		for _, c := range slices.Clone(w.chans) {
			w.forget(c)
			w.chans = slices.DeleteFunc(w.chans, func(o uint64) bool { return o == c })
			w.step(ChannelDown{c})
		}
		for range 100 {
			w.now = w.now.Add(10 * time.Second)
			w.step(Tick{})
		}
		w.account()
		s := &w.table.slots
		if n := len(s.queue) - s.first; w.table.Len() != 0 || n != len(s.made)-1 {
			t.Fatalf("%d rows stay, %d of %d slots are free", w.table.Len(), n, len(s.made)-1)
		}
	})
}

// TestLabelWrap uses one slot over and over: its label comes back after 4,096 uses,
// which is long after anybody may still send by it.
func TestLabelWrap(t *testing.T) {
	table := NewTable(Config{Slots: 2, GrantSize: 1}, rand.New(rand.NewPCG(1, 1)))
	now := epoch()
	table.Step(now, PeerUp{"a", "b1", 1})
	acts := table.Step(now, ChannelUp{1})
	first := map[Label]time.Time{}
	for i := range 2 * 4096 {
		l := acts[0].(Grant).Labels[0]
		if at, ok := first[l]; ok {
			if now.Sub(at) < 34*time.Hour || i < 4096 {
				t.Fatalf("use %d: label %v again after %v", i, l, now.Sub(at))
			}
		}
		first[l] = now
		acts = table.Step(now, Route{Channel: 1, Circuit: "c", Deadline: now.Add(time.Second), Ends: [2]End{{Kind: Link, Peer: "a", Arrive: l, Send: 1}, {Kind: Local}}})
		if _, ok := acts[0].(Install); !ok {
			t.Fatalf("use %d: %v", i, acts)
		}
		table.Step(now, Unroute{"c", 0})
		now = now.Add(restTime)
		acts = table.Step(now, Tick{})
	}
	if len(first) != 4096 {
		t.Errorf("%d labels, want 4096", len(first))
	}
}

func TestLabelParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Uint32Range(0, MaxSlots-1).Draw(t, "slot")
		gen := rapid.Uint16Range(0, 4095).Draw(t, "gen")
		if l := New(slot, gen); l.Slot() != slot || l.Gen() != gen {
			t.Fatalf("label of %d.%d is %v", slot, gen, l)
		}
	})
}

func TestEntryTakes(t *testing.T) {
	for _, c := range []struct {
		entry Entry
		label Label
		conn  uint64
		want  bool
	}{
		{Entry{Arrive: New(5, 7), Conn: 3}, New(5, 7), 3, true},
		{Entry{Arrive: New(5, 7), Conn: 3}, New(5, 8), 3, false},
		{Entry{Arrive: New(5, 7), Conn: 3}, New(6, 7), 3, false},
		{Entry{Arrive: New(5, 7), Conn: 3}, New(5, 7), 4, false},
		{Entry{Arrive: New(5, 7)}, New(5, 7), 0, false}, // down
		{Entry{Kind: Local}, 0, 0, false},
		{Entry{Conn: 3}, 0, 3, false},
	} {
		if got := c.entry.Takes(c.label, c.conn); got != c.want {
			t.Errorf("%+v takes %v from %d: got %v, want %v", c.entry, c.label, c.conn, got, c.want)
		}
	}
}

// fill installs n transit rows.
func fill(t testing.TB, table *Table, n int) {
	now := epoch()
	table.Step(now, PeerUp{"r1", "b1", 1})
	table.Step(now, PeerUp{"r2", "b1", 2})
	var labels []Label
	take := func(acts []Action) {
		for _, a := range acts {
			if g, ok := a.(Grant); ok {
				labels = append(labels, g.Labels...)
			}
		}
	}
	take(table.Step(now, ChannelUp{1}))
	for i := range n {
		ev := Route{Channel: 1, Circuit: ginnel.CircuitID(fmt.Sprintf("circuit-%d", i)), Deadline: now.Add(time.Second)}
		ev.Ends[0] = End{Kind: Link, Peer: "r1", Arrive: labels[0], Send: 1}
		ev.Ends[1] = End{Kind: Link, Peer: "r2", Arrive: labels[1], Send: 1}
		labels = labels[2:]
		take(table.Step(now, ev))
	}
	if table.Len() != n {
		t.Fatalf("%d rows, want %d", table.Len(), n)
	}
}

func TestMemoryPerRow(t *testing.T) {
	const rows = 20_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := NewTable(Config{}, rand.New(rand.NewPCG(1, 1)))
	fill(t, table, rows)
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / rows
	t.Logf("%d bytes a row, of which the struct %d", each, unsafe.Sizeof(row{}))
	if each > 600 { // of 1 KiB; the rest is for the data path's own
		t.Errorf("a row takes %d bytes", each)
	}
	runtime.KeepAlive(table)
}

// BenchmarkStep routes and unroutes beside 10,000 other rows.
func BenchmarkStep(b *testing.B) {
	table := NewTable(Config{}, rand.New(rand.NewPCG(1, 1)))
	fill(b, table, 10_000)
	now := epoch()
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		for _, a := range table.Step(now, Route{Channel: 1, Circuit: "x", Deadline: now.Add(time.Hour), Ends: [2]End{{Kind: Edge, Peer: "r1"}, {Kind: Local}}}) {
			if r, ok := a.(Refuse); ok {
				b.Fatal(r)
			}
		}
		table.Step(now, Unroute{"x", 0})
		if table.Len() < 10_000 { // provisional rows that were not confirmed
			break
		}
	}
}

// BenchmarkTakes is the check that every frame pays for.
func BenchmarkTakes(b *testing.B) {
	e := &Entry{Arrive: New(5, 7), Conn: 3}
	n := 0
	for b.Loop() {
		if e.Takes(New(5, 7), 3) {
			n++
		}
	}
	if n == 0 {
		b.Fatal("never taken")
	}
}
