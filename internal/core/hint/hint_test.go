// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package hint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

var start = time.Unix(1000, 0)

// moveTime is how long a client of the model takes to follow a hint.
const moveTime = 300 * time.Millisecond

// model is a diamond with two ways from A to C, over B and over D, circuits on
// them, and a Planner whose hints the clients follow.
type model struct {
	t        *testing.T
	plan     Planner
	now      time.Time
	cost     map[ginnel.RouterID]ginnel.Cost // of B and D
	rtt      map[ginnel.RouterID]ginnel.Duration
	circuits []onWay
	moves    map[ginnel.CircuitID]int
	moving   []moving
	sent     []time.Time // of each hint
}

// onWay is a circuit with the path that it is on.
type onWay struct {
	Circuit
	Path path.Path
}

// ways gives the circuits by their paths.
func (m *model) ways() (all []Way) {
	of := map[string][]Circuit{}
	paths := map[string]path.Path{}
	for _, c := range m.circuits {
		key := strconv.Itoa(len(c.Path.Links))
		for _, id := range c.Path.Routers {
			key += string(id)
		}
		of[key], paths[key] = append(of[key], c.Circuit), c.Path
	}
	for key, p := range paths {
		all = append(all, Way{Path: p, Circuits: func() []Circuit { return of[key] }})
	}
	return all
}

// gone reports whether a circuit is not there any more.
func (m *model) gone(id ginnel.CircuitID) bool {
	return !slices.ContainsFunc(m.circuits, func(c onWay) bool { return c.ID == id })
}

type moving struct {
	at   time.Time
	hint Hint
}

func newModel(t *testing.T, circuits int) *model {
	m := &model{
		t: t, now: start, moves: make(map[ginnel.CircuitID]int),
		cost: make(map[ginnel.RouterID]ginnel.Cost), rtt: make(map[ginnel.RouterID]ginnel.Duration),
	}
	for i := range circuits {
		m.circuits = append(m.circuits, onWay{Circuit{ID: ginnel.CircuitID(fmt.Sprintf("c%05d", i)), Generation: 1}, over("B")})
	}
	return m
}

func over(r ginnel.RouterID) path.Path {
	return path.Path{Routers: []ginnel.RouterID{"A", r, "C"}, Links: []ginnel.LinkID{ginnel.LinkID("A/" + r), ginnel.LinkID(r + "/C")}}
}

// topology is the diamond as it is now; over D it is 4 units dearer.
func (m *model) topology() *path.Snapshot {
	var rs []path.Router
	for _, id := range []ginnel.RouterID{"A", "B", "C", "D"} {
		rs = append(rs, path.Router{ID: id, Cost: m.cost[id], Connected: true})
	}
	link := func(a, b ginnel.RouterID, units int64, rtt ginnel.Duration) ginnel.Link {
		return ginnel.Link{ID: ginnel.LinkID(a + "/" + b), A: a, B: b, StaticCost: ginnel.Units(units), RTT: rtt, Measured: true, Up: true}
	}
	return path.New(ginnel.MinRouterCost, rs, []ginnel.Link{
		link("A", "B", 1, m.rtt["B"]), link("B", "C", 1, 0), link("A", "D", 5, m.rtt["D"]), link("D", "C", 1, 0),
	})
}

// step asks the Planner, notes its hints and gives when it wants to be asked again.
func (m *model) step() time.Time {
	hints, next := m.plan.Step(m.now, m.topology(), m.ways())
	for _, h := range hints {
		m.sent = append(m.sent, m.now)
		m.moving = append(m.moving, moving{m.now.Add(moveTime), h})
	}
	if !next.IsZero() && !next.After(m.now) {
		m.t.Fatalf("at %v asked to be asked at once", m.now.Sub(start))
	}
	return next
}

// follow lets the clients move whose time has come: to the best path there is.
func (m *model) follow() {
	done := 0
	for _, mv := range m.moving {
		if mv.at.After(m.now) {
			break
		}
		done++
		i, _ := slices.BinarySearchFunc(m.circuits, mv.hint.Circuit, func(c onWay, id ginnel.CircuitID) int {
			return cmp.Compare(c.ID, id)
		})
		c := &m.circuits[i]
		if c.Generation != mv.hint.Generation {
			m.t.Fatalf("%s was told of generation %d in %d", c.ID, mv.hint.Generation, c.Generation)
		}
		best, _ := m.topology().Tree("A", path.Exclusions{}).To("C")
		if !slices.Equal(best.Routers, c.Path.Routers) {
			m.moves[c.ID]++
		}
		c.Path, c.Generation = path.Path{Routers: best.Routers, Links: best.Links}, c.Generation+256
	}
	m.moving = m.moving[done:]
}

// run runs the model for a while; change is called every second before the rest.
func (m *model) run(d time.Duration, change func()) {
	const tick = 50 * time.Millisecond
	next := m.now
	for end := m.now.Add(d); m.now.Before(end); m.now = m.now.Add(tick) {
		second := m.now.Sub(start)%time.Second == 0
		if second && change != nil {
			change()
		}
		m.follow()
		// As the shell does: at each new snapshot, and when it is time.
		if second && change != nil || !next.IsZero() && !next.After(m.now) {
			next = m.step()
		}
	}
}

func (m *model) on(r ginnel.RouterID) (n int) {
	for _, c := range m.circuits {
		if c.Path.Routers[1] == r {
			n++
		}
	}
	return n
}

// busiest gives the most hints within any d.
func (m *model) busiest(d time.Duration) (most int) {
	from := 0
	for to := range m.sent {
		for m.sent[to].Sub(m.sent[from]) >= d {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// Five thousand circuits leave a router that has become dear: all of them, each
// once, with so many hints a second and no more, and within four minutes.
func TestL43_ManyCircuitsLeaveOnceAndInTime(t *testing.T) {
	m := newModel(t, 5000)
	m.run(time.Minute, nil)
	if len(m.sent) != 0 {
		t.Fatalf("%d hints before anything has changed", len(m.sent))
	}
	m.cost["B"] = ginnel.Units(1000)
	m.run(4*time.Minute, nil)
	if left := m.on("B"); left != 0 {
		t.Errorf("%d circuits are left", left)
	}
	m.run(time.Hour, nil)
	if len(m.sent) != 5000 || len(m.moves) != 5000 {
		t.Errorf("%d hints, %d circuits moved, want 5000", len(m.sent), len(m.moves))
	}
	for id, n := range m.moves {
		if n != 1 {
			t.Errorf("%s moved %d times", id, n)
		}
	}
	if got := m.busiest(Every); got > Batch {
		t.Errorf("%d hints within %v", got, Every)
	}
	if got := m.busiest(time.Second); got > 4*Batch {
		t.Errorf("%d hints within a second", got)
	}
	if got := m.busiest(Round); got > 2*5000/share {
		t.Errorf("%d hints within %v", got, Round)
	}
}

// The way that is taken gets dear by that, and costs say so late: each circuit
// moves at most once, and the rest stays where it is.
func TestMovedLoadDoesNotComeBack(t *testing.T) {
	for _, perCircuit := range []time.Duration{25 * time.Microsecond, 75 * time.Microsecond, 150 * time.Microsecond} {
		t.Run(perCircuit.String(), func(t *testing.T) {
			m := newModel(t, 400)
			smoothed, published := map[ginnel.RouterID]*path.RTT{}, map[ginnel.RouterID]*path.Published{}
			for _, r := range []ginnel.RouterID{"B", "D"} {
				smoothed[r], published[r] = new(path.RTT), new(path.Published)
			}
			loaded := func() {
				for r, rtt := range smoothed {
					published[r].Offer(m.now, rtt.Add(5*time.Millisecond+time.Duration(m.on(r))*perCircuit))
					now, _ := published[r].RTT()
					m.rtt[r] = ginnel.Duration(now)
				}
			}
			m.run(10*time.Minute, loaded)
			most := 0
			for _, n := range m.moves {
				most = max(most, n)
			}
			if most > 1 {
				t.Errorf("a circuit moved %d times; %d hints", most, len(m.sent))
			}
			if n := len(m.sent); n > 0 && m.now.Sub(m.sent[n-1]) < 7*time.Minute {
				t.Errorf("the last of %d hints came %v before the end", n, m.now.Sub(m.sent[n-1]))
			}
			t.Logf("%d over B, %d over D, %d hints", m.on("B"), m.on("D"), len(m.sent))
		})
	}
}

// A client that does not follow is told again, at ever longer times.
func TestWhoDoesNotMoveIsToldLessOften(t *testing.T) {
	m := newModel(t, 1)
	m.cost["B"] = ginnel.Units(1000)
	var told []time.Duration
	for m.now.Sub(start) < 5*time.Hour {
		before := len(m.sent)
		next := m.step()
		if len(m.sent) > before {
			told = append(told, m.now.Sub(start))
		}
		if next.IsZero() {
			t.Fatal("never asked again")
		}
		m.now = next
	}
	want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 127, 127 + 64, 127 + 2*64}
	for i := range want {
		want[i] *= time.Minute
	}
	if !slices.Equal(told, want) {
		t.Errorf("told at %v, want %v", told, want)
	}
}

// What cannot be a better path of the client's is left alone, and what is gone is
// forgotten.
func TestNoHint(t *testing.T) {
	m := newModel(t, 1)
	m.cost["B"] = ginnel.Units(1000)
	good := m.circuits[0]
	odd, broken, empty := good, good, good
	odd.ID, odd.Path.Links = "odd", nil
	broken.ID, broken.Path = "broken", over("X")
	empty.ID, empty.Path = "empty", path.Path{}
	m.circuits = []onWay{odd, broken, empty, good}
	m.step()
	if len(m.moving) != 1 || m.moving[0].hint.Circuit != good.ID || m.moving[0].hint.Generation != 1 || m.moving[0].hint.Gain <= 0 {
		t.Errorf("hints: %+v", m.moving)
	}
	m.circuits = nil
	m.plan.Forget(m.gone)
	if m.now = m.now.Add(Every); !m.step().IsZero() || len(m.plan.told) != 0 {
		t.Errorf("kept in mind: %v", m.plan.told)
	}
}

// BenchmarkStep is one step while a hundred thousand circuits should move.
func BenchmarkStep(b *testing.B) {
	m := newModel(nil, 100_000)
	m.cost["B"] = ginnel.Units(1000)
	topology, ways := m.topology(), m.ways()
	b.ReportAllocs()
	for b.Loop() {
		m.now = m.now.Add(Every)
		m.plan.Step(m.now, topology, ways)
	}
}
