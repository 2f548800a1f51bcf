// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// packet is a frame on its way.
type packet struct {
	frame   Frame // without Raw
	payload []byte
}

// hop is a connection between node i and i+1 of a path; pipes are FIFO. What is in
// line was sent and waits for the socket: it may still be thrown away.
type hop struct {
	up    bool
	pipes [2][]packet // 0: towards the host
	lines [2][]packet
}

// side is what a transit router holds for one neighbour of a row.
type side struct {
	credit Credit
	window Window
	wait   Backlog[packet] // to be sent to this side
}

// router is a transit router with one row: side 0 is nearer to the client.
type router struct {
	sides [2]side
}

// route is one path of the circuit through the model network.
type route struct {
	generation uint32
	hops       []*hop
	routers    []*router
}

// network joins two ends by paths that may break anywhere at any time. It keeps
// the two rules for queues of the package comment, and overtakes wherever they allow.
type network struct {
	t      *rapid.T
	now    time.Time
	budget *Budget
	total  int64
	ends   [2]*Flow
	inbox  [2]Inbox
	routes []*route // oldest first; the last is the newest
	wrote  [2][]byte
	got    [2][]byte
	closed [2]bool
	ended  [2]int // times that the end of the stream was seen
	most   int
}

func newNetwork(t *rapid.T) *network {
	n := &network{t: t, now: epoch(), total: 64 << 20, most: 100_000}
	n.budget = NewBudget(n.total)
	for i := range n.ends {
		f, err := New(n.now, Config{Role: Role(i), Budget: n.budget, MaxRetained: n.most, MaxWindow: 64 << 10, ResumeTimeout: 1e6 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		n.ends[i] = f
	}
	n.addRoute(0)
	return n
}

func (n *network) addRoute(generation uint32) {
	k := rapid.IntRange(1, 3).Draw(n.t, "routers")
	r := &route{generation: generation}
	for range k + 1 {
		r.hops = append(r.hops, &hop{up: true})
	}
	for range k {
		ro := new(router)
		for i := range ro.sides {
			if err := ro.sides[i].window.Open(n.now, n.budget, 64<<10); err != nil {
				n.t.Fatal(err)
			}
		}
		r.routers = append(r.routers, ro)
	}
	n.routes = append(n.routes, r)
}

func (n *network) route(generation uint32) *route {
	for _, r := range n.routes {
		if r.generation == generation {
			return r
		}
	}
	n.t.Fatalf("frame on unknown path %d", generation)
	return nil
}

// pump sends what the ends have to say.
func (n *network) pump() {
	for i, f := range n.ends {
		for {
			left := f.credit.Left()
			fr, ok := f.Next(n.now)
			if !ok {
				break
			}
			p := packet{frame: fr}
			p.frame.Raw = nil
			if fr.Kind == Data {
				p.payload = bytes.Clone(fr.Payload())
				if len(p.payload) > left || len(p.payload) > MaxPayload {
					n.t.Fatalf("%d bytes sent on credit of %d", len(p.payload), left)
				}
				for j := range HeaderRoom { // what a shell writes there must harm nobody
					fr.Raw[j] = 0xff
				}
			}
			r := n.route(fr.Generation)
			at := 0
			if i == 1 {
				at = len(r.hops) - 1
			}
			n.put(r, at, i, p)
		}
		if kept := f.Retained(); kept > n.most+MaxPayload {
			n.t.Fatalf("end %d retains %d", i, kept)
		}
	}
}

// deliver takes the oldest packet out of one pipe of one hop.
func (n *network) deliver(r *route, at, dir int) {
	pipe := &r.hops[at].pipes[dir]
	p := (*pipe)[0]
	*pipe = (*pipe)[1:]
	switch node := at + dir; { // dir 0 arrives at node at+1, dir 1 at node at
	case dir == 0 && node == len(r.hops)-1:
		n.arrive(1, r.generation, p)
	case dir == 1 && at == 0:
		n.arrive(0, r.generation, p)
	case dir == 0:
		n.relay(r, at, dir, p)
	default:
		n.relay(r, at-1, dir, p)
	}
}

// relay passes p through router i, coming from the client's side for dir 0.
func (n *network) relay(r *route, i, dir int, p packet) {
	from := &r.routers[i].sides[dir]
	if p.frame.Kind == Grant {
		from.credit.Raise(p.frame.Offset)
		n.flush(r, i, 1-dir)
		return
	}
	if len(p.payload) > 0 && !from.window.Receive(len(p.payload)) {
		n.t.Fatalf("router %d: more data than credit", i)
	}
	n.say(r, i, dir, p)
}

// say sends p, from elsewhere or its own, from router i in direction dir.
func (n *network) say(r *route, i, dir int, p packet) {
	if !r.hops[i+1-dir].up {
		n.consume(r, i, dir, len(p.payload))
		return
	}
	to := &r.routers[i].sides[1-dir]
	to.wait.Put(p.frame.Kind, len(p.payload), p, n.drop(r, i, dir))
	if waits := len(to.wait.ahead); waits > 4 {
		n.t.Fatalf("router %d: %d control frames wait", i, waits)
	}
	n.flush(r, i, dir)
}

// drop counts what a backlog in direction dir throws away.
func (n *network) drop(r *route, i, dir int) func(packet, int) {
	return func(_ packet, size int) { n.consume(r, i, dir, size) }
}

// consume counts bytes that came in direction dir as gone from router i.
func (n *network) consume(r *route, i, dir, size int) {
	if size == 0 {
		return
	}
	limit, send := r.routers[i].sides[dir].window.Consume(n.now, size, 0)
	if send {
		n.put(r, i+dir, 1-dir, packet{frame: Frame{Kind: Grant, Offset: limit}})
	}
}

// put sends p over a hop in direction dir. What need not keep its place overtakes.
func (n *network) put(r *route, at, dir int, p packet) {
	h := r.hops[at]
	if !h.up {
		return
	}
	if p.frame.Kind == Resume || p.frame.Kind == PathBroken {
		n.unsent(r, at, dir)
	}
	if p.frame.Kind.inLine() {
		h.lines[dir] = append(h.lines[dir], p)
	} else {
		h.pipes[dir] = append(h.pipes[dir], p)
	}
}

// unsent throws away what waits in line at a hop; the credit spent on it is whole again.
func (n *network) unsent(r *route, at, dir int) {
	size := 0
	for _, p := range r.hops[at].lines[dir] {
		size += len(p.payload)
	}
	r.hops[at].lines[dir] = nil
	switch {
	case dir == 0 && at == 0:
		n.ends[0].Unsent(r.generation, size)
	case dir == 1 && at == len(r.hops)-1:
		n.ends[1].Unsent(r.generation, size)
	default:
		r.routers[at-1+dir].sides[1-dir].credit.Unspend(size)
	}
}

// flush sends what waits in router i in direction dir: control first, then a
// random part of the rest, within credit.
func (n *network) flush(r *route, i, dir int) {
	to, at := &r.routers[i].sides[1-dir], i+1-dir
	if rapid.IntRange(0, 3).Draw(n.t, "blocked") == 0 {
		return
	}
	for {
		p, size, ok := to.wait.Next(&to.credit)
		if !ok {
			return
		}
		n.put(r, at, dir, p)
		n.consume(r, i, dir, size)
	}
}

// arrive hands p to an end.
func (n *network) arrive(i int, generation uint32, p packet) {
	f, fr := n.ends[i], p.frame
	switch fr.Kind {
	case PathBroken:
		f.OnPathBroken(n.now, generation)
	case PathMended:
		f.OnPathMended(n.now, generation)
	case Start:
		f.OnStart(n.now, generation)
	case Resume:
		f.OnResume(n.now, generation, fr.Number, fr.Offset)
	case Grant:
		f.OnCredit(n.now, generation, fr.Offset)
	case Ack:
		f.OnAck(n.now, generation, fr.Offset)
	case Data:
		if f.OnData(n.now, generation, len(p.payload)) {
			n.inbox[i].Put(p.payload)
		}
	case EOF:
		f.OnEOF(n.now, generation)
	case KeepAlive:
		f.OnKeepAlive(n.now, generation)
	default:
		n.t.Fatalf("end %d got %v %v %q", i, fr.Kind, fr.Code, fr.Text)
	}
	if err := f.Err(); err != nil {
		n.t.Fatalf("end %d: %v", i, err)
	}
	n.look(i)
}

// look checks what an end has received so far.
func (n *network) look(i int) {
	if n.ends[i].Ended() && n.ended[i] == 0 {
		n.ended[i]++
		if !n.closed[1-i] || !bytes.Equal(n.got[i], n.wrote[1-i]) {
			n.t.Fatalf("end %d: the stream ended after %d of %d bytes", i, len(n.got[i]), len(n.wrote[1-i]))
		}
	}
}

func (n *network) read(i, size int) {
	p := make([]byte, size)
	m := n.inbox[i].Read(p)
	at := len(n.got[i])
	n.got[i] = append(n.got[i], p[:m]...)
	if want := n.wrote[1-i]; len(want) < at+m || !bytes.Equal(want[at:at+m], p[:m]) {
		n.t.Fatalf("end %d: bytes %d to %d are not what was written", i, at, at+m)
	}
	n.ends[i].Consume(n.now, m)
	n.look(i)
}

func (n *network) write(i, size int) {
	if n.closed[i] {
		return
	}
	p := make([]byte, size)
	for j := range p {
		p[j] = byte((len(n.wrote[i]) + j) * 7 >> 3)
	}
	m := n.ends[i].Append(p)
	n.wrote[i] = append(n.wrote[i], p[:m]...)
}

// cut breaks a hop: its frames are lost, both neighbours say so to their other side.
func (n *network) cut(r *route, at int) {
	h := r.hops[at]
	if !h.up {
		return
	}
	h.up, h.pipes, h.lines = false, [2][]packet{}, [2][]packet{}
	n.tell(r, at, packet{frame: Frame{Kind: PathBroken}})
}

// mend replaces a hop's connection; both neighbours start counting anew.
func (n *network) mend(r *route, at int) {
	h := r.hops[at]
	if h.up {
		return
	}
	h.up = true
	if at > 0 {
		n.restart(r, at-1, 0, at-1)
	}
	if at < len(r.hops)-1 {
		n.restart(r, at, 1, at+1)
	}
	n.tell(r, at, packet{frame: Frame{Kind: PathMended}})
}

// restart begins router i's counts towards the mended hop. dir leads to it; other
// is the hop on the far side, and while that one is down the mended one is told.
func (n *network) restart(r *route, i, dir, other int) {
	s := &r.routers[i].sides[1-dir]
	s.credit.Restart()
	s.window.Restart(n.now)
	if !r.hops[other].up {
		n.put(r, i+1-dir, dir, packet{frame: Frame{Kind: PathBroken}})
	}
}

// tell makes both nodes beside hop at send p away from it.
func (n *network) tell(r *route, at int, p packet) {
	if at > 0 {
		n.lose(r, at-1, 0, p)
	} else if p.frame.Kind == PathBroken {
		n.ends[0].OnConnLost(n.now, r.generation)
	} else {
		n.ends[0].OnConnBack(n.now, r.generation)
	}
	if at < len(r.hops)-1 {
		n.lose(r, at, 1, p)
	} else if p.frame.Kind == PathBroken {
		n.ends[1].OnConnLost(n.now, r.generation)
	} else {
		n.ends[1].OnConnBack(n.now, r.generation)
	}
}

// lose throws away what waits for the broken hop, to which dir leads, and says so
// to the other side; p may also say that it is back.
func (n *network) lose(r *route, i, dir int, p packet) {
	r.routers[i].sides[1-dir].wait.Clear(n.drop(r, i, dir))
	n.say(r, i, 1-dir, p)
}

// deliverOne takes from a random pipe or line; false when all are empty.
func (n *network) deliverOne() bool {
	type spot struct {
		r       *route
		at, dir int
		line    bool
	}
	var spots []spot
	for _, r := range n.routes {
		for at, h := range r.hops {
			for dir := range h.pipes {
				if len(h.pipes[dir]) > 0 {
					spots = append(spots, spot{r, at, dir, false})
				}
				if len(h.lines[dir]) > 0 {
					spots = append(spots, spot{r, at, dir, true})
				}
			}
		}
	}
	if len(spots) == 0 {
		return false
	}
	s := spots[rapid.IntRange(0, len(spots)-1).Draw(n.t, "pipe")]
	if !s.line {
		n.deliver(s.r, s.at, s.dir)
		return true
	}
	h := s.r.hops[s.at]
	h.pipes[s.dir] = append(h.pipes[s.dir], h.lines[s.dir][0])
	h.lines[s.dir] = h.lines[s.dir][1:]
	return true
}

func (n *network) step() {
	i := rapid.IntRange(0, 1).Draw(n.t, "end")
	r := n.routes[rapid.IntRange(max(0, len(n.routes)-2), len(n.routes)-1).Draw(n.t, "route")]
	at := rapid.IntRange(0, len(r.hops)-1).Draw(n.t, "hop")
	switch what := rapid.IntRange(0, 99).Draw(n.t, "what"); {
	case what < 20:
		n.write(i, rapid.IntRange(1, 20_000).Draw(n.t, "size"))
	case what < 35:
		n.read(i, rapid.IntRange(1, 30_000).Draw(n.t, "size"))
	case what < 36 && len(n.wrote[i]) > 30_000:
		n.ends[i].CloseWrite()
		n.closed[i] = true
	case what < 39:
		n.cut(r, at)
	case what < 44:
		n.mend(r, at)
	case what < 46 || n.ends[0].Wants() == WantPath && what < 50:
		n.reroute()
	case what < 50:
		n.now = n.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(n.t, "ms")) * time.Millisecond)
		for _, f := range n.ends {
			f.Tick(n.now)
		}
	default:
		n.deliverOne()
	}
	n.pump()
}

// reroute gives the circuit another path.
func (n *network) reroute() {
	next := n.routes[len(n.routes)-1].generation + 256
	n.addRoute(next)
	if err := n.ends[0].NewPath(n.now, next); err != nil {
		n.t.Fatal(err)
	}
}

// settle mends everything, gives another path where one is wanted, and lets both streams run to their ends.
func (n *network) settle() {
	for i := range n.ends {
		n.ends[i].CloseWrite()
		n.closed[i] = true
	}
	for round := 0; !n.ends[0].Done() || !n.ends[1].Done(); round++ {
		if round > 2000 {
			n.t.Fatalf("stuck: %s", n.describe())
		}
		r := n.routes[len(n.routes)-1]
		for at := range r.hops {
			n.mend(r, at)
		}
		if n.ends[0].Wants() == WantPath {
			n.reroute()
		}
		n.pump()
		for range 20 {
			if !n.deliverOne() {
				break
			}
			n.pump()
		}
		for _, r := range n.routes {
			for i := range r.routers {
				n.flush(r, i, 0)
				n.flush(r, i, 1)
			}
		}
		n.now = n.now.Add(20 * time.Millisecond)
		for i, f := range n.ends {
			f.Tick(n.now)
			n.read(i, 50_000)
		}
		n.pump()
	}
}

func (n *network) describe() string {
	var b bytes.Buffer
	for i, f := range n.ends {
		fmt.Fprintf(&b, "end %d: state %d generation %d wrote %d got %d retained %d credit %d ended %d closed %v; ", i, f.state,
			f.generation, len(n.wrote[i]), len(n.got[i]), f.Retained(), f.credit.Left(), n.ended[i], n.closed[i])
	}
	return b.String()
}

// check ends a run: every byte and each end of stream arrived once, and all memory
// is given back.
func (n *network) check() {
	for i := range n.ends {
		if !bytes.Equal(n.got[i], n.wrote[1-i]) || n.ended[i] != 1 {
			n.t.Fatalf("end %d got %d of %d bytes and %d ends", i, len(n.got[i]), len(n.wrote[1-i]), n.ended[i])
		}
		if n.ends[i].Retained() != 0 {
			n.t.Fatalf("end %d retains %d when done", i, n.ends[i].Retained())
		}
		n.ends[i].Close()
	}
	for _, r := range n.routes {
		for _, ro := range r.routers {
			for i := range ro.sides {
				ro.sides[i].window.Close()
			}
		}
	}
	if n.budget.Left() != n.total {
		n.t.Fatalf("%d bytes of budget are gone", n.total-n.budget.Left())
	}
}

// TestL65_StreamsSurviveBreaks plays random writes, reads, breaks, mends and new paths
// between two ends and compares what arrives with what was written.
func TestL65_StreamsSurviveBreaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newNetwork(t)
		n.pump()
		for range rapid.IntRange(10, 400).Draw(t, "steps") {
			n.step()
		}
		n.settle()
		n.check()
	})
}
