// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// direct is a hop whose frames the other end takes when run is called: what a
// stream sends while it takes a frame waits its turn.
type direct struct {
	to    *Stream
	mu    sync.Mutex // a host's handshake has a goroutine of its own
	queue [][]byte
	spare [][]byte // a queue to be
	free  [][]byte
}

func (*direct) Label() uint32      { return 7 }
func (*direct) RTT() time.Duration { return 0 }
func (*direct) Drop() int          { return 0 }
func (*direct) Stalled()           {}

func (d *direct) Ordered(_ Batch, frame []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b []byte
	if n := len(d.free); n > 0 {
		b, d.free = d.free[n-1], d.free[:n-1]
	}
	d.queue = append(d.queue, append(b[:0], frame...))
}

func (d *direct) Urgent(b Batch, frame []byte) { d.Ordered(b, frame) }

// deliver hands over what has come; false when there is nothing.
func (d *direct) deliver() bool {
	d.mu.Lock()
	queue := d.queue
	d.queue, d.spare = d.spare[:0], nil
	d.mu.Unlock()
	for _, frame := range queue {
		h, _ := wire.ParseHeader(frame)
		d.to.Frame(1, h, frame[wire.HeaderSize:])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = append(d.free, queue...)
	d.spare = queue
	return len(queue) > 0
}

// run hands over all frames of both directions.
func run(a, b *direct) {
	for a.deliver() || b.deliver() {
		continue
	}
}

// pair gives two ends that one goroutine runs by calling step.
func pair(t testing.TB, tr *trust, cfg Config) (client, host *Conn, step func()) {
	_, flight, c, h := flights(t, tr, cfg, cfg)
	toHost, toClient := &direct{to: h.Stream()}, &direct{to: c.Stream()}
	host, err := h.Up(1, toClient)
	if err != nil {
		t.Fatal(err)
	}
	client, err = c.Up(t.Context(), 1, toHost, flight)
	if err != nil {
		t.Fatal(err)
	}
	run(toHost, toClient)
	if err := host.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	step = func() { run(toHost, toClient) }
	_, _ = host.Write([]byte("x")) // behind the session ticket, which the client reads thus
	step()
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	step()
	t.Cleanup(func() {
		client.Abort(0, "")
		host.Abort(0, "")
		<-client.stream.Done()
		<-host.stream.Done()
	})
	return client, host, step
}

// shelf is Slabs for one goroutine.
type shelf struct{ free []*flow.Slab }

func (s *shelf) Get() *flow.Slab {
	if n := len(s.free); n > 0 {
		slab := s.free[n-1]
		s.free = s.free[:n-1]
		return slab
	}
	return new(flow.Slab)
}

func (s *shelf) Put(slab *flow.Slab) { s.free = append(s.free, slab) }

// A record that is written, sent, acknowledged and read allocates nothing.
func TestARecordCostsNoAllocation(t *testing.T) {
	if raceOn {
		t.Skip("the race detector allocates")
	}
	cfg := config()
	cfg.Slabs = new(shelf)
	client, host, step := pair(t, newTrust(t), cfg)
	in, out := make([]byte, wire.MaxRecord), make([]byte, wire.MaxRecord)
	record := func() {
		if _, err := client.Write(out); err != nil {
			t.Fatal(err)
		}
		step()
		if _, err := io.ReadFull(host, in); err != nil {
			t.Fatal(err)
		}
		step()
	}
	for range 100 {
		record()
	}
	if n := testing.AllocsPerRun(1000, record); n > 0 {
		t.Errorf("got %v allocations a record, want none", n)
	}
	deadline := time.Now()
	if n := testing.AllocsPerRun(1000, func() {
		deadline = deadline.Add(time.Hour)
		_ = host.SetReadDeadline(deadline)
	}); n >= 1 {
		t.Errorf("got %v allocations to move a deadline, want none", n)
	}
}

func BenchmarkRecord(b *testing.B) {
	cfg := config()
	cfg.Slabs = new(shelf)
	client, host, step := pair(b, newTrust(b), cfg)
	in, out := make([]byte, wire.MaxRecord), make([]byte, wire.MaxRecord)
	b.SetBytes(int64(len(out)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = client.Write(out)
		step()
		_, _ = io.ReadFull(host, in)
		step()
	}
}

func BenchmarkConnectAndClose(b *testing.B) {
	for _, resumed := range []bool{false, true} {
		name := "full"
		if resumed {
			name = "resumed"
		}
		b.Run(name, func(b *testing.B) {
			tr := newTrust(b)
			if !resumed {
				tr.cache = nil
			}
			b.ReportAllocs()
			got := false
			for b.Loop() {
				got = oneByte(b, tr, config())
			}
			if got != resumed {
				b.Errorf("resumed %v, want %v", got, resumed)
			}
		})
	}
}

// oneByte is a connection that carries one byte, and its whole end.
func oneByte(t testing.TB, tr *trust, cfg Config) (resumed bool) {
	_, flight, c, h := flights(t, tr, cfg, cfg)
	toHost, toClient := &direct{to: h.Stream()}, &direct{to: c.Stream()}
	host, err := h.Up(1, toClient)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Up(t.Context(), 1, toHost, flight)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	run(toHost, toClient)
	_ = client.CloseWrite()
	p := make([]byte, 1)
	if _, err := host.Read(p); err != nil { // once it has run its handshake
		t.Fatal(err)
	}
	run(toHost, toClient)
	if _, err := host.Read(p); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	run(toHost, toClient)
	_ = host.Close()
	run(toHost, toClient)
	if _, err := client.Read(p); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_ = client.Close()
	run(toHost, toClient)
	<-client.stream.Done()
	<-host.stream.Done()
	return client.Resumed()
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestL68_ConnectOneByteClose(t *testing.T) {
	n := 10_000
	if raceOn || testing.Short() {
		n = 500
	}
	tr, cfg := newTrust(t), config()
	all := cfg.Budget.Left()
	for range 200 {
		oneByte(t, tr, cfg)
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	for range n {
		oneByte(t, tr, cfg)
	}
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("%d connections left %d bytes", n, grown)
	}
	if now := runtime.NumGoroutine(); now > goroutines+2 || cfg.Budget.Left() != all {
		t.Errorf("%d goroutines more, %d bytes of the budget gone", now-goroutines, all-cfg.Budget.Left())
	}
}

// What an established circuit holds in each of its ends while nothing is said,
// before and after a transfer.
func TestMemoryOfAnIdleEnd(t *testing.T) {
	if raceOn {
		t.Skip("the race detector takes memory")
	}
	const n = 100
	cfg := Config{Budget: flow.NewBudget(1 << 30)}
	tr := newTrust(t)
	before := heap()
	var conns [n][2]*Conn
	var steps [n]func()
	for i := range n {
		conns[i][0], conns[i][1], steps[i] = pair(t, tr, cfg)
	}
	forget := func() { // what the hops of this test keep
		for _, c := range conns {
			for _, end := range c {
				d := end.stream.hop.(*direct)
				d.queue, d.spare, d.free = nil, nil, nil
			}
		}
	}
	forget()
	idle := (heap() - before) / (2 * n)
	p := make([]byte, wire.MaxRecord)
	for i, c := range conns {
		for range 20 {
			for j := range 2 {
				_, _ = c[j].Write(p)
				steps[i]()
				_, _ = io.ReadFull(c[1-j], p)
				steps[i]()
			}
		}
	}
	forget()
	used := (heap() - before) / (2 * n)
	for _, c := range conns { // 45 s later
		for _, end := range c {
			end.stream.mu.Lock()
			end.stream.flow.Tick(time.Now().Add(46 * time.Second))
			end.stream.pump(time.Now())
			end.stream.mu.Unlock()
		}
	}
	forget()
	rested := (heap() - before) / (2 * n)
	t.Logf("an end holds %d bytes when made, %d behind a transfer, %d after 45 s", idle, used, rested)
	if idle > 36<<10 || rested > 40<<10 {
		t.Error("that is too much")
	}
}
