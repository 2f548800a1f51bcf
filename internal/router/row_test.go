// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// bench is a transit row between two connections over loopback.
type bench struct {
	c         *circuits
	row       *row
	near, far *port // as the router has them
	nearEnd   *transport.Conn
	farEnd    *transport.Conn
}

// sink takes what a connection brings.
type sink struct {
	mu     sync.Mutex
	frames []wire.Header
	data   int
}

func (s *sink) Frame(_ *transport.Batch, h wire.Header, _ []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Type == wire.Data {
		s.data += h.Length
	} else {
		s.frames = append(s.frames, h)
	}
	return nil
}

func (s *sink) Message(*wire.Message) error { return nil }

func (s *sink) bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// pair joins two connections over TLS, as a link has. They end with the test.
func pair(t testing.TB, n transport.Network, host string, a, b *pki.Holder) (near, far *transport.Conn) {
	t.Helper()
	l, err := n.Listen(host + ":0")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *transport.Conn)
	server := transport.NewServer(transport.ServerConfig{
		TLS: pki.ServerConfig(b, time.Now, wire.ALPNLink), Identify: transport.IdentifyBy(b), Log: slog.New(slog.DiscardHandler),
		Protocols: map[string]transport.Protocol{wire.ALPNLink: {Frames: func(ctx context.Context, c *transport.Conn) {
			got <- c
			<-ctx.Done()
		}}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	near, err = transport.DialFramed(t.Context(), n, l.Addr().String(),
		pki.ClientConfig(a, time.Now, ginnel.Peer{}, wire.ALPNLink), transport.IdentifyBy(a))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(nil) })
	return near, <-got
}

func newBench(t testing.TB, n transport.Network, host string) *bench {
	t.Helper()
	ca, err := pki.NewCA(testNetwork, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	holder := func(id string) *pki.Holder {
		key, err := pki.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := ca.Issue(time.Now(), routerPeer(id), key.Public())
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.NewCredential(key, leaf, ca.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return pki.NewHolder(c)
	}
	h := holder("r2")
	m := &Memory{key: h.Load().Key, credential: h.Load()}
	r, err := New(Options{
		Config: Config{Controllers: []ginnel.Address{"tls:127.0.0.1:1"}}, Network: transport.OS{}, Credentials: m,
		Log: slog.New(slog.DiscardHandler), Random: rand.New(rand.NewPCG(1, 1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	t.Cleanup(func() {
		cancel()
		r.running.Wait()
	})
	b := &bench{c: r.circuits}
	var nearConn, farConn *transport.Conn
	b.nearEnd, nearConn = pair(t, n, host, holder("r1"), h)
	farConn, b.farEnd = pair(t, n, host, h, holder("r3"))
	b.near = &port{number: 1, conn: nearConn}
	b.far = &port{number: 2, conn: farConn}
	b.c.ports[1], b.c.ports[2] = b.near, b.far
	b.row = b.install(t, 1, label.New(5, 7), label.New(6, 7))
	return b
}

// install puts a row in place without its table.
func (b *bench) install(t testing.TB, id label.RowID, up, down label.Label) *row {
	t.Helper()
	r := &row{c: b.c, id: id, circuit: "c-1", generation: 1}
	err := b.c.open(time.Now(), r, [2]label.Entry{
		{Kind: label.Link, Conn: 1, Arrive: up, Send: label.New(50, 1)},
		{Kind: label.Link, Conn: 2, Arrive: down, Send: label.New(60, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.sides {
		b.c.slots.set(s)
	}
	r.last.Store(1) // not the first frame
	return r
}

// give hands a frame of p to the data path.
func (b *bench) give(p *port, batch *transport.Batch, frame []byte) {
	h, err := wire.ParseHeader(frame)
	if err != nil {
		panic(err)
	}
	b.c.take(p, batch, h, frame)
}

func dataOf(l label.Label, n int) []byte {
	return wire.AppendFrame(nil, uint32(l), wire.Data, 0, make([]byte, n))
}

func creditOf(l label.Label, n uint64) []byte {
	return wire.AppendUint64Frame(nil, uint32(l), wire.Credit, n)
}

func TestNoAllocationForAForwardedFrame(t *testing.T) {
	b := newBench(t, transport.OS{}, "127.0.0.1")
	for _, c := range []*transport.Conn{b.nearEnd, b.farEnd} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Run(context.Background(), &sink{})
		}()
		t.Cleanup(func() {
			c.Close(nil)
			<-done
		})
	}
	for _, size := range []int{64, wire.MaxPayload} {
		frame := dataOf(0, size)
		sent := uint64(0)
		credit := creditOf(label.New(6, 7), 0)
		var batch transport.Batch
		forward := func() {
			sent += uint64(size)
			wire.AppendUint64Frame(credit[:0], uint32(label.New(6, 7)), wire.Credit, b.row.ways[0].passed()+flow.InitialWindow+uint64(size))
			b.give(b.far, &batch, credit)
			wire.PutLabel(frame, uint32(label.New(5, 7)))
			b.give(b.near, &batch, frame)
			batch.Flush()
			for b.row.ways[0].queued() > 0 { // the socket is full: that is another path
				runtime.Gosched()
			}
		}
		for range 200 {
			forward()
		}
		if allocs := testing.AllocsPerRun(1000, forward); allocs != 0 && !raceDetector {
			t.Errorf("%d bytes: %v allocations for a frame", size, allocs)
		}
	}
	if b.row.over.Load() {
		t.Error("the row was reset")
	}
}

func BenchmarkLookup(b *testing.B) {
	x := newBench(b, transport.OS{}, "127.0.0.1")
	b.ReportAllocs()
	l := uint32(label.New(5, 7))
	for b.Loop() {
		if x.c.slots.find(l, x.near) == nil {
			b.Fatal("not found")
		}
	}
}

// A frame is taken only with its whole label and from the connection of its row.
func TestL110_LabelsAreNeverShared(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		other := b.install(t, 2, label.New(7, 1), label.New(8, 1))
		for _, c := range []struct {
			what  string
			port  *port
			label label.Label
			want  *row
		}{
			{"right", b.near, label.New(5, 7), b.row},
			{"other way", b.far, label.New(6, 7), b.row},
			{"other row", b.near, label.New(7, 1), other},
			{"other connection", b.far, label.New(5, 7), nil},
			{"older generation", b.near, label.New(5, 6), nil},
			{"unused slot", b.near, label.New(9, 0), nil},
			{"unused chunk", b.near, label.New(1<<20-1, 0), nil},
			{"no slot", b.near, 0, nil},
		} {
			s := b.c.slots.find(uint32(c.label), c.port)
			if c.want == nil && s != nil || c.want != nil && (s == nil || s.row != c.want) {
				t.Errorf("%s: got %v", c.what, s)
			}
		}
		// A cleared row takes no frame, and a slot that was given on stays.
		next := b.install(t, 3, label.New(5, 8), label.New(6, 8))
		for _, s := range b.row.sides {
			b.c.slots.clear(s)
		}
		if s := b.c.slots.find(uint32(label.New(5, 8)), b.near); s == nil || s.row != next {
			t.Errorf("the slot's next row is gone")
		}
	})
}

// What waits for credit is bounded by what was granted, however small the frames
// are, and so is what needs no credit.
func TestWaitingIsBounded(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		near, far := &sink{}, &sink{}
		run(t, b.nearEnd, near)
		run(t, b.farEnd, far)
		one := dataOf(label.New(5, 7), 1)
		for _, n := range []int{flow.InitialWindow, flow.MaxPayload} {
			for range n {
				b.give(b.near, nil, one)
				wire.PutLabel(one, uint32(label.New(5, 7)))
			}
			synctest.Wait()
		}
		if b.row.over.Load() {
			t.Fatal("reset within what was granted")
		}
		w := &b.row.ways[0]
		w.mu.Lock()
		waiting, frames := w.line.Bytes(), 0
		var all flow.Credit
		all.Raise(1 << 40)
		for h, _, ok := w.line.Next(&all); ok; h, _, ok = w.line.Next(&all) {
			frames++
			h.free()
		}
		w.mu.Unlock()
		if waiting == 0 || frames > 2 {
			t.Errorf("%d bytes wait in %d frames", waiting, frames)
		}
		for range 1 << 17 {
			b.give(b.near, nil, one)
			wire.PutLabel(one, uint32(label.New(5, 7)))
		}
		if !b.row.over.Load() {
			t.Error("more than credit was taken")
		}
	})
}

func TestMarksPassOnce(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		far := &sink{}
		run(t, b.farEnd, far)
		for range 1000 {
			for _, typ := range []wire.Type{wire.Start, wire.EOF} {
				b.give(b.near, nil, wire.AppendFrame(nil, uint32(label.New(5, 7)), typ, 0, nil))
			}
			b.give(b.near, nil, dataOf(label.New(5, 7), 0))
		}
		settled(t, func() bool {
			far.mu.Lock()
			defer far.mu.Unlock()
			return len(far.frames) >= 2
		})
		far.mu.Lock()
		defer far.mu.Unlock()
		if len(far.frames) != 2 || far.frames[0].Type != wire.Start || far.frames[1].Type != wire.EOF || far.data != 0 {
			t.Errorf("got %v", far.frames)
		}
	})
}

// While a side has no connection what goes there is answered with PATH_BROKEN and
// counts as consumed; credit begins anew with the next connection.
func TestDownSide(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		near := &sink{}
		run(t, b.nearEnd, near)
		b.row.rebind(time.Now(), 1, nil)
		for range 8 { // more than the initial window
			b.give(b.near, nil, dataOf(label.New(5, 7), flow.InitialWindow/2))
		}
		if b.row.over.Load() {
			t.Fatal("what was thrown away did not count as consumed")
		}
		settled(t, func() bool {
			near.mu.Lock()
			defer near.mu.Unlock()
			n := 0
			for _, h := range near.frames {
				if h.Type == wire.PathBroken {
					n++
				}
			}
			return n >= 1 // at most one waits where the socket is full
		})
		b.row.rebind(time.Now(), 1, b.far)
		far := &sink{}
		run(t, b.farEnd, far)
		b.give(b.near, nil, dataOf(label.New(5, 7), flow.InitialWindow/2))
		settled(t, func() bool { return far.bytes() == flow.InitialWindow/2 })
	})
}

// PATH_BROKEN and RESUME make void what stands before them.
func TestVoid(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		far := &sink{}
		run(t, b.farEnd, far)
		for range 2 {
			b.give(b.near, nil, dataOf(label.New(5, 7), flow.InitialWindow/2))
		}
		synctest.Wait()
		for range 4 {
			b.give(b.near, nil, dataOf(label.New(5, 7), flow.InitialWindow/4))
			b.give(b.near, nil, wire.AppendFrame(nil, uint32(label.New(5, 7)), wire.PathBroken, 0, nil))
		}
		b.give(b.near, nil, dataOf(label.New(5, 7), flow.InitialWindow/4))
		b.give(b.near, nil, wire.AppendResumeAt(nil, uint32(label.New(5, 7)), 1, 0))
		b.give(b.near, nil, dataOf(label.New(5, 7), 100))
		b.give(b.far, nil, creditOf(label.New(6, 7), 2*flow.InitialWindow))
		settled(t, func() bool { return far.bytes() == flow.InitialWindow+100 })
		if w := &b.row.ways[0]; !w.line.Empty() || w.window.Waiting() != 0 {
			t.Errorf("%d bytes wait", w.window.Waiting())
		}
		b.row.close(time.Now())
		if left := b.c.budget.Left(); left != circuitBudget {
			t.Errorf("%d bytes of budget are kept", circuitBudget-left)
		}
	})
}

// What RESUME and PATH_BROKEN throw away in front of a full socket was never sent, and
// costs no credit: else the way would be shut for good after some of them.
func TestL65_ThrownAwayCostsNoCredit(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		run(t, b.nearEnd, &sink{})
		const limit = 1 << 30
		b.give(b.far, nil, creditOf(label.New(6, 7), limit))
		w := &b.row.ways[0]
		for _, void := range [][]byte{
			wire.AppendResumeAt(nil, uint32(label.New(5, 7)), 1, 0),
			wire.AppendFrame(nil, uint32(label.New(5, 7)), wire.PathBroken, 0, nil),
		} {
			for w.queued() < flow.InitialWindow/2 { // farEnd is not read
				b.give(b.near, nil, dataOf(label.New(5, 7), 1000))
				synctest.Wait()
			}
			b.give(b.near, nil, void)
		}
		far := &sink{}
		run(t, b.farEnd, far)
		settled(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return far.bytes() > 0 && w.credit.Left() == limit-far.bytes()
		})
	})
}

// A peer that grants without end and takes nothing makes this router keep no
// more than it granted itself.
func TestStuckSocketIsBounded(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		run(t, b.nearEnd, &sink{})
		// farEnd is not read.
		b.give(b.far, nil, creditOf(label.New(6, 7), 1<<60))
		frame := dataOf(0, wire.MaxPayload)
		for range 4096 { // 64 MiB
			if b.row.over.Load() {
				break
			}
			wire.PutLabel(frame, uint32(label.New(5, 7)))
			b.give(b.near, nil, frame)
		}
		if !b.row.over.Load() {
			t.Error("64 MiB were taken for a reader that takes nothing")
		}
	})
}

// queued gives the bytes that stand in the connection's queue.
func (w *way) queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int(w.sent)
}

// run reads a connection until the test ends.
func run(t *testing.T, c *transport.Conn, s *sink) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(context.Background(), s)
	}()
	t.Cleanup(func() { c.Close(io.EOF); <-done })
}

// onBench runs a test in a bubble.
func onBench(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t, pipe.New(), "host")) })
}

// settled lets everything happen that can, and then asks.
func settled(t *testing.T, is func() bool) {
	t.Helper()
	synctest.Wait()
	if !is() {
		t.Error("it did not come about")
	}
}

// A row that carries little costs little.
func TestMemoryOfARow(t *testing.T) {
	b := newBench(t, transport.OS{}, "127.0.0.1")
	const rows = 20000
	table := label.NewTable(label.Config{}, rand.New(rand.NewPCG(1, 1)))
	now := time.Now()
	for i, peer := range []string{"a", "b"} {
		table.Step(now, label.PeerUp{Peer: peer, Boot: "b", Conn: uint64(i + 1)})
	}
	grants := table.Step(now, label.ChannelUp{Channel: 1})
	labels := slices.Clone(grants[0].(label.Grant).Labels)
	kept := make([]*row, 0, rows)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range rows {
		for _, a := range table.Step(now, label.Route{
			Channel: 1, Circuit: ginnel.CircuitID("circuit-" + strconv.Itoa(i)), Generation: 1, Deadline: now.Add(time.Second),
			Ends: [2]label.End{{Peer: "a", Arrive: labels[0], Send: 1}, {Peer: "b", Arrive: labels[1], Send: 1}},
		}) {
			if g, ok := a.(label.Grant); ok {
				labels = append(labels, g.Labels...)
			}
			in, ok := a.(label.Install)
			if !ok {
				continue
			}
			r := &row{c: b.c, id: in.Row, circuit: in.Circuit, generation: 1}
			if err := b.c.open(now, r, in.Ends); err != nil {
				t.Fatal(err)
			}
			for _, s := range r.sides {
				b.c.slots.set(s)
			}
			b.c.byID[in.Row] = r
			kept = append(kept, r)
		}
		labels = labels[2:]
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int(after.HeapAlloc-before.HeapAlloc) / rows
	t.Logf("%d bytes for a row", each)
	if len(kept) != rows || each > 700 {
		t.Errorf("%d bytes for each of %d rows", each, len(kept))
	}
}
