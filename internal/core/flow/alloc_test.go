// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/ginnel/ginnel"
)

// couple is two ends with nothing between them.
type couple struct {
	now   time.Time
	ends  [2]*Flow
	shelf shelf
}

// shelf is Slabs for one goroutine.
type shelf struct{ free []*Slab }

func (s *shelf) Get() *Slab {
	if n := len(s.free); n > 0 {
		slab := s.free[n-1]
		s.free = s.free[:n-1]
		return slab
	}
	return new(Slab)
}

func (s *shelf) Put(slab *Slab) { s.free = append(s.free, slab) }

func newCouple(t testing.TB) *couple {
	c := &couple{now: epoch()}
	for i := range c.ends {
		f, err := New(c.now, Config{Role: Role(i), Budget: NewBudget(64 << 20), Slabs: &c.shelf})
		if err != nil {
			t.Fatal(err)
		}
		c.ends[i] = f
	}
	c.exchange(t)
	return c
}

// exchange carries frames until neither end has one; what arrives is read at once.
func (c *couple) exchange(t testing.TB) {
	for busy := true; busy; {
		busy = false
		for i, from := range c.ends {
			to := c.ends[1-i]
			for fr, ok := from.Next(c.now); ok; fr, ok = from.Next(c.now) {
				busy = true
				switch fr.Kind {
				case Start:
					to.OnStart(c.now, fr.Generation)
				case Ack:
					to.OnAck(c.now, fr.Generation, fr.Offset)
				case Grant:
					to.OnCredit(c.now, fr.Generation, fr.Offset)
				case Data:
					n := len(fr.Payload())
					if !to.OnData(c.now, fr.Generation, n) {
						t.Fatal("data not taken")
					}
					to.Consume(c.now, n)
				case EOF:
					to.OnEOF(c.now, fr.Generation)
				case Resume, Reset, KeepAlive, PathBroken, PathMended:
					t.Fatalf("unexpected %v", fr.Kind)
				}
			}
		}
	}
}

func TestNoAllocationPerFrame(t *testing.T) {
	for _, size := range []int{1, 100, MaxPayload} {
		c := newCouple(t)
		p := make([]byte, size)
		step := func() {
			c.now = c.now.Add(10 * time.Microsecond)
			if c.ends[0].Append(p) != size || c.ends[1].Append(p) != size {
				t.Fatal("no room")
			}
			c.exchange(t)
			_ = c.ends[0].Deadline()
		}
		for range 10_000 { // a round of acknowledgements, and window growth
			step()
		}
		if n := testing.AllocsPerRun(10_000, step); n != 0 {
			t.Errorf("frames of %d bytes: %v allocations each, want none", size, n)
		}
	}
}

func TestL67_MemoryComesBack(t *testing.T) {
	c := newCouple(t)
	p := make([]byte, MaxPayload)
	for range 1000 {
		c.ends[0].Append(p)
		c.exchange(t)
	}
	c.now = c.now.Add(ackDelay)
	c.tick(t)
	c.now = c.now.Add(keepAliveAfter)
	c.ends[0].Tick(c.now)
	if n := c.ends[0].out.purse.out; n > 0 {
		t.Errorf("an idle end holds %d slabs, want none", n)
	}
	if n := c.ends[0].Retained(); n != 0 {
		t.Errorf("an idle end retains %d bytes", n)
	}
}

func (c *couple) tick(t testing.TB) {
	for _, f := range c.ends {
		f.Tick(c.now)
	}
	c.exchange(t)
}

func TestL68_ConnectOneByteClose(t *testing.T) {
	budget := NewBudget(1 << 20)
	for range 10_000 {
		c := &couple{now: epoch()}
		for i := range c.ends {
			f, err := New(c.now, Config{Role: Role(i), Budget: budget})
			if err != nil {
				t.Fatal(err)
			}
			c.ends[i] = f
			f.Append([]byte{1})
			f.CloseWrite()
		}
		c.exchange(t)
		for i, f := range c.ends {
			if !f.Done() || f.Err() != nil {
				t.Fatalf("end %d: done %v, error %v", i, f.Done(), f.Err())
			}
			f.Close()
		}
	}
	if left := budget.Left(); left != 1<<20 {
		t.Errorf("%d bytes of budget are gone", 1<<20-left)
	}
}

func TestDelivered(t *testing.T) {
	c := newCouple(t)
	c.ends[0].Append([]byte("hello"))
	c.exchange(t)
	if c.ends[0].Delivered() {
		t.Error("delivered before the stream has ended")
	}
	c.ends[0].CloseWrite()
	c.exchange(t)
	if !c.ends[0].Delivered() || c.ends[0].Done() || c.ends[1].Delivered() {
		t.Error("a stream that ended and was read is delivered, and nothing else")
	}
}

// TestWindowFollowsRoundTrip feeds a hop of 50 ms: the window reaches what that
// needs; a hop without latency stays at what any may have, at the same rate.
func TestWindowFollowsRoundTrip(t *testing.T) {
	grow := func(rtt time.Duration) int {
		c := newCouple(t)
		f := c.ends[1]
		f.SetRTT(rtt)
		for range 4000 { // 16 MB/s
			c.now = c.now.Add(time.Millisecond)
			if f.OnData(c.now, f.Generation(), MaxPayload) {
				f.Consume(c.now, MaxPayload)
			}
		}
		return int(f.window.size)
	}
	const product = 50 * MaxPayload // of 50 ms
	if far, near := grow(50*time.Millisecond), grow(0); far < 2*product || far > 8*product || near > easyWindow {
		t.Errorf("windows of %d and %d bytes, want about %d and %d", far, near, 3*product, easyWindow)
	}
}

// What a sender that waits for credit gets through a hop of 50 ms, by its window alone,
// is most of what the wire takes.
func TestWindowFillsALongWire(t *testing.T) {
	const rtt, perTick = 50 * time.Millisecond, 25 << 10 // 25 MB/s
	var w Window
	var credit Credit
	now := epoch()
	if err := w.Open(now, NewBudget(64<<20), 0); err != nil {
		t.Fatal(err)
	}
	type arrival struct {
		at    time.Time
		limit uint64 // of CREDIT; 0: it is DATA
	}
	var wire []arrival
	room, got := 0, 0
	for tick := range 4000 {
		now = now.Add(time.Millisecond)
		for len(wire) > 0 && !wire[0].at.After(now) {
			a := wire[0]
			wire = wire[1:]
			if a.limit > 0 {
				credit.Raise(a.limit)
				continue
			}
			if !w.Receive(MaxPayload) {
				t.Fatal("more than credit came")
			}
			if tick >= 3000 {
				got += MaxPayload
			}
			if limit, send := w.Consume(now, MaxPayload, rtt); send {
				wire = append(wire, arrival{now.Add(rtt / 2), limit})
			}
		}
		for room = min(room+perTick, 4*MaxPayload); room >= MaxPayload && credit.Spend(MaxPayload); room -= MaxPayload {
			wire = append(wire, arrival{at: now.Add(rtt / 2)})
		}
	}
	if most := 1000 * perTick; got < most*8/10 {
		t.Errorf("%d bytes went in the last second, the wire takes %d", got, most)
	}
}

// A circuit whose turns come late since many others have theirs gets as large a
// window as any: it would stay behind for ever.
func TestWindowOfABusyMachine(t *testing.T) {
	c := newCouple(t)
	f := c.ends[1]
	f.SetRTT(100 * time.Microsecond)
	for range 100 {
		c.now = c.now.Add(10 * time.Millisecond)
		for f.OnData(c.now, f.Generation(), MaxPayload) && f.window.granted-f.window.received >= MaxPayload {
			continue
		}
		f.Consume(c.now, f.window.Waiting())
	}
	if f.window.size != easyWindow {
		t.Errorf("a window of %d bytes, want %d", f.window.size, easyWindow)
	}
}

// Where processor and not wire sets the pace, both ends of a hop run at once, for some
// milliseconds, and much faster than bytes go on in the long run. A window that grew
// by that would only let more stand in the socket, which others wait for.
func TestWindowDoesNotGrowByItsOwnQueue(t *testing.T) {
	c := newCouple(t)
	f := c.ends[1]
	f.SetRTT(200 * time.Microsecond)
	for range 1000 {
		c.now = c.now.Add(3 * time.Millisecond) // others have their turn
		for range 300 {                         // 1.6 GB/s
			c.now = c.now.Add(10 * time.Microsecond)
			if !f.OnData(c.now, f.Generation(), MaxPayload) {
				t.Fatal(f.Err())
			}
			f.Consume(c.now, MaxPayload)
		}
	}
	if most := 2 << 20; int(f.window.size) > most {
		t.Errorf("a window of %d bytes, want at most %d", f.window.size, most)
	}
}

func TestBusyWhenBudgetIsExhausted(t *testing.T) {
	for _, left := range []int64{0, SlabSize, SlabSize + InitialWindow - 1} {
		b := NewBudget(left)
		if _, err := New(epoch(), Config{Budget: b}); !errors.Is(err, ginnel.Busy) {
			t.Errorf("budget %d: got %v, want BUSY", left, err)
		}
		if b.Left() != left {
			t.Errorf("budget %d: %d left after a refusal", left, b.Left())
		}
	}
}

func TestInbox(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	in := NewInbox(nil)
	var want, got []byte
	for range 2000 {
		p := make([]byte, rng.IntN(MaxPayload))
		for i := range p {
			p[i] = byte(rng.Uint32())
		}
		in.Put(p)
		want = append(want, p...)
		buf := make([]byte, rng.IntN(2*MaxPayload))
		n := in.Read(buf)
		got = append(got, buf[:n]...)
		if in.Len() != len(want)-len(got) {
			t.Fatalf("holds %d bytes, want %d", in.Len(), len(want)-len(got))
		}
	}
	rest := make([]byte, in.Len())
	got = append(got, rest[:in.Read(rest)]...)
	if !bytes.Equal(got, want) {
		t.Error("what was read is not what was put")
	}
	if len(in.queue) != 0 {
		t.Errorf("an empty inbox holds %d slabs", len(in.queue))
	}
	in.Put(make([]byte, 100))
	in.Close()
	if in.Len() != 0 || in.Read(rest) != 0 {
		t.Error("a closed inbox holds bytes")
	}
}

func TestInboxDoesNotAllocate(t *testing.T) {
	in := NewInbox(nil)
	p := make([]byte, MaxPayload)
	in.Put(p) // something always waits
	if n := testing.AllocsPerRun(1000, func() { in.Put(p); in.Read(p) }); n != 0 {
		t.Errorf("%v allocations a frame, want none", n)
	}
}

func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(Window{}) + unsafe.Sizeof(Credit{}); n > 128 {
		t.Errorf("credit of one direction takes %d bytes", n)
	}
	if n := unsafe.Sizeof(Flow{}); n > 1024 {
		t.Errorf("a Flow takes %d bytes", n)
	}
}

func BenchmarkStream(b *testing.B) {
	c := newCouple(b)
	p := make([]byte, MaxPayload)
	b.SetBytes(MaxPayload)
	b.ReportAllocs()
	for b.Loop() {
		c.now = c.now.Add(10 * time.Microsecond)
		c.ends[0].Append(p)
		c.exchange(b)
	}
}
