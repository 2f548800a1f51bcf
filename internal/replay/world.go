// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// An instant may take a number of steps and some more for each router of the
// store: a script can make a peer that is accepted and lost in no time, without
// end.
const (
	maxSteps          = 10_000
	maxStepsPerRouter = 100
)

// epoch is the instant 0s.
var epoch = time.Unix(0, 0).UTC()

// world is the store, the network and the clock that a machine is played in.
type world struct {
	machine *dialer.Dialer
	groups  []string
	out     *printer

	now     time.Duration
	steps   int // at this instant
	store   map[dialer.Key][]ginnel.Address
	network map[ginnel.Address]outcome
	coming  happenings // what the network will do, earliest first
	order   uint64     // of happenings at one instant

	conns map[connName]uint64   // by the names of the script
	links map[dialer.Key]uint64 // the current connection of each router
	last  uint64                // connection number
	live  map[uint64]outcome    // dials under way, by attempt
	gone  map[uint64]bool       // connections whose life is not to end again
}

type connName struct {
	router dialer.Key
	name   string
}

// newWorld makes a world at instant 0s.
func newWorld(cfg dialer.Config, rng dialer.Random, out *printer) *world {
	w := &world{
		groups: cfg.Groups, out: out,
		store:   make(map[dialer.Key][]ginnel.Address),
		network: make(map[ginnel.Address]outcome),
		conns:   make(map[connName]uint64),
		links:   make(map[dialer.Key]uint64),
		live:    make(map[uint64]outcome),
		gone:    make(map[uint64]bool),
	}
	w.machine = dialer.New(cfg, rng, dialer.Addresses(w.store))
	return w
}

// play runs the lines to the end, and what is due between them. At one instant
// lines come first, then what the network does, then the machine's own time.
func (w *world) play(lines []line) error {
	for _, l := range lines {
		if l.at > w.now {
			if err := w.advance(l.at); err != nil {
				return err
			}
		}
		if _, stop := l.do.(end); stop {
			return w.out.summary(w.now, w.machine.Stats())
		}
		w.carryOut(l.do)
	}
	if err := w.settle(); err != nil {
		return err
	}
	return w.out.summary(w.now, w.machine.Stats())
}

// advance runs all that is due before to, and makes to the present.
func (w *world) advance(to time.Duration) error {
	for {
		if err := w.settle(); err != nil {
			return err
		}
		next := w.deadline()
		if len(w.coming) > 0 {
			next = min(next, w.coming[0].at)
		}
		if next >= to {
			w.now, w.steps = to, 0
			return nil
		}
		w.now, w.steps = next, 0
	}
}

// settle runs all that is due now.
func (w *world) settle() error {
	for {
		for len(w.coming) > 0 && w.coming[0].at <= w.now {
			w.happen(heap.Pop(&w.coming).(happening))
		}
		for w.deadline() <= w.now {
			w.step(dialer.Tick{})
		}
		if len(w.coming) == 0 || w.coming[0].at > w.now {
			return nil
		}
		if w.steps > maxSteps+maxStepsPerRouter*len(w.store) {
			return fmt.Errorf("at %s: dials succeed and are lost in no time, without end", w.now)
		}
	}
}

// deadline is when the machine wants a tick; at once before its first step.
func (w *world) deadline() time.Duration {
	at := w.machine.Deadline()
	if at.IsZero() {
		return w.now
	}
	return at.Sub(epoch)
}

// carryOut does what a line of the script says.
func (w *world) carryOut(do order) {
	switch do := do.(type) {
	case store:
		w.store[do.router] = do.matching(w.groups)
		if do.event {
			w.step(dialer.Updated{Key: do.router, Disabled: do.disabled})
		}
	case remove:
		delete(w.store, do.router)
		w.step(dialer.Deleted{Key: do.router})
	case connect:
		w.last++
		w.conns[connName{do.router, do.conn}] = w.last
		w.links[do.router] = w.last
		w.step(dialer.ConnUp{Key: do.router, Conn: w.last})
	case disconnect:
		conn := w.links[do.router]
		if do.conn != nil {
			conn = w.conns[connName{do.router, *do.conn}]
		}
		w.gone[conn] = true
		w.lose(do.router, conn)
	case redial:
		w.step(dialer.Redial{Key: do.router})
	case network:
		w.network[do.address] = do.dial
	case end:
	}
}

// lose tells the machine that a connection is gone.
func (w *world) lose(router dialer.Key, conn uint64) {
	if w.links[router] == conn {
		delete(w.links, router)
	}
	w.step(dialer.ConnLost{Key: router, Conn: conn})
}

// step feeds the machine and carries out its actions. A scan is answered after
// the actions that came with it: they are in the machine's own buffer.
func (w *world) step(ev dialer.Event) {
	w.steps++
	var scan *dialer.Scan
	for _, a := range w.machine.Step(epoch.Add(w.now), ev) {
		switch a := a.(type) {
		case dialer.Dial:
			w.out.dial(w.now, a)
			w.dial(a)
		case dialer.Hangup:
			delete(w.live, a.Attempt)
		case dialer.Close:
			delete(w.links, a.Key)
			w.gone[a.Conn] = true
		case dialer.Scan:
			scan = &a
		case dialer.Answered:
			w.out.answered(w.now, a)
		case dialer.Moved:
			w.out.moved(w.now, a)
		case dialer.Ignored:
			w.out.ignored(w.now, a)
		}
	}
	if scan != nil {
		keys := slices.Sorted(maps.Keys(w.store))
		w.step(dialer.ScanPage{Scan: scan.Scan, Keys: keys})
	}
}

// dial starts a dial, whose outcome is settled now.
func (w *world) dial(d dialer.Dial) {
	result, known := w.network[d.Address]
	if !known {
		result = outcome{kind: "refused"}
	}
	w.live[d.Attempt] = result
	if result.kind != "timeout" { // else the machine gives up by itself
		w.expect(happening{at: w.now + result.after, router: d.Key, attempt: d.Attempt})
	}
}

// happen makes the network do what it was to do, unless it no longer matters.
func (w *world) happen(h happening) {
	if h.conn != 0 {
		if !w.gone[h.conn] {
			w.lose(h.router, h.conn)
		}
		return
	}
	result, ok := w.live[h.attempt]
	if !ok {
		return
	}
	delete(w.live, h.attempt)
	if result.kind != "ok" {
		w.step(dialer.DialDone{Key: h.router, Attempt: h.attempt, Err: errors.New(result.kind)})
		return
	}
	w.last++
	conn := w.last
	w.links[h.router] = conn
	if result.life >= 0 {
		w.expect(happening{at: w.now + result.life, router: h.router, conn: conn})
	}
	w.step(dialer.DialDone{Key: h.router, Attempt: h.attempt, Conn: conn})
}

func (w *world) expect(h happening) {
	w.order++
	h.order = w.order
	heap.Push(&w.coming, h)
}

// happening is the end of a dial, or the loss of a dialed connection.
type happening struct {
	at      time.Duration
	order   uint64
	router  dialer.Key
	attempt uint64
	conn    uint64 // not 0: its loss
}

// happenings is a heap.
type happenings []happening

// Len is the number of happenings.
func (h happenings) Len() int { return len(h) }

// Less reports whether i comes before j.
func (h happenings) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].order, h[j].order)) < 0
}

// Swap swaps two happenings.
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push adds x at the end.
func (h *happenings) Push(x any) { *h = append(*h, x.(happening)) }

// Pop takes the last one off.
func (h *happenings) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
