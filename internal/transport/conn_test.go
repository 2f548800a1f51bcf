// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestFramesOverTLS(t *testing.T) {
	a, b := tlsPair(t, wire.ALPNLink)
	if a.Peer() != router("r2") || b.Peer() != router("r1") || a.ALPN() != wire.ALPNLink {
		t.Fatalf("peers %v and %v over %q", a.Peer(), b.Peer(), a.ALPN())
	}
	var sent, got [][]byte
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		payload := make([]byte, rng.IntN(wire.MaxPayload+1))
		if i%3 == 0 {
			payload = payload[:min(len(payload), 100)]
		}
		for j := range payload {
			payload[j] = byte(rng.Uint32())
		}
		sent = append(sent, dataFrame(7, payload))
	}
	done := make(chan struct{})
	stopB := run(receiver{frame: func(_ *Batch, _ wire.Header, frame []byte) error {
		if got = append(got, bytes.Clone(frame)); len(got) == len(sent) {
			close(done)
		}
		return nil
	}}, b)
	defer stopB()
	defer run(receiver{}, a)()
	q := a.NewQueue()
	for _, f := range sent {
		if err := a.SendData(nil, q, f); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	for i := range sent {
		if !bytes.Equal(sent[i], got[i]) {
			t.Fatalf("frame %d differs", i)
		}
	}
}

func TestRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := plainPair(t, pipe.New(), controller("c"), router("r"), wire.ALPNCtrl)
		defer run(receiver{message: func(m *wire.Message) error {
			switch {
			case m.GetUnroute() != nil:
				return b.ReplyError(m.GetId(), ginnel.Errorf(ginnel.NoPath, "no way"))
			case m.GetHint() != nil:
				return nil // no answer, ever
			case m.GetRevoke() != nil:
				b.Close(errors.New("enough"))
				return nil
			}
			return b.ReplyDone(m.GetId())
		}}, b)()
		defer run(receiver{}, a)()

		ask := func(m *wire.Message) (*wire.Message, error) { return a.Request(t.Context(), m) }
		if m, err := ask(&wire.Message{Body: &wire.Message_Done{}}); err != nil || m.GetDone() == nil {
			t.Errorf("got %v, %v, want done", m, err)
		}
		_, err := ask(&wire.Message{Body: &wire.Message_Unroute{Unroute: &wire.Unroute{}}})
		var failure *ginnel.DialError
		if !errors.As(err, &failure) || failure.Code != ginnel.NoPath || failure.Message != "no way" {
			t.Errorf("got %v, want NO_PATH", err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = a.Request(ctx, &wire.Message{Body: &wire.Message_Hint{Hint: &wire.Hint{}}})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 300*time.Millisecond {
			t.Errorf("got %v after %v, want deadline exceeded after 300ms", err, time.Since(start))
		}
		start = time.Now()
		_, err = ask(&wire.Message{Body: &wire.Message_Revoke{Revoke: &wire.Revoke{}}})
		if err == nil || time.Since(start) != 0 {
			t.Errorf("got %v after %v, want the connection's end at once", err, time.Since(start))
		}
		if _, err := ask(&wire.Message{Body: &wire.Message_Done{}}); err == nil {
			t.Error("request on an ended connection: got no error")
		}
	})
}

// A peer that takes nothing: urgent frames wait before bulk, one of each kind per circuit,
// and circuits share what is left.
func TestOrderOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, router("r1"), router("r2"), wire.ALPNLink)
		var got []string
		bulk := map[uint32]int{}
		n.Silence("r1", "r2")
		q1, q2 := a.NewQueue(), a.NewQueue()
		full := make([]byte, wire.MaxPayload)
		for range 30 { // more than fits on the way
			must(t, a.SendData(nil, q1, dataFrame(1, full)))
		}
		synctest.Wait()
		must(t, a.SendData(nil, q2, dataFrame(2, []byte("small"))))
		for i := range uint64(3) {
			must(t, a.SendFrame(nil, wire.AppendUint64Frame(nil, 5, wire.Ack, i)))
		}
		must(t, a.SendFrame(nil, wire.AppendFrame(nil, 6, wire.PathBroken, 0, nil)))
		must(t, a.SendFrame(nil, wire.AppendFrame(nil, 6, wire.PathMended, 0, nil)))
		must(t, a.SendFrame(nil, wire.AppendFrame(nil, 6, wire.PathBroken, 0, nil)))
		must(t, a.Notify(&wire.Message{Body: &wire.Message_Done{Done: &wire.Done{}}}))
		left := q1.Len()
		if left == 0 {
			t.Fatal("nothing waits")
		}
		n.Resume("r1", "r2")
		stop := run(receiver{
			message: func(*wire.Message) error { got = append(got, "control"); return nil },
			frame: func(_ *Batch, h wire.Header, frame []byte) error {
				bulk[h.Label]++
				switch {
				case h.Type == wire.Ack:
					v, _ := wire.ParseUint64(frame[wire.HeaderSize:])
					got = append(got, fmt.Sprint("ack ", v))
				case h.Label == 6:
					got = append(got, fmt.Sprint("path ", h.Type))
				case h.Label == 2:
					got = append(got, fmt.Sprint("small, with bulk left: ", bulk[1] < 30))
				}
				return nil
			},
		}, b)
		synctest.Wait()
		want := []string{"control", "ack 2", "path 9", "path 8", "small, with bulk left: true"}
		if !slices.Equal(got, want) || bulk[1] != 30 {
			t.Errorf("got %q and %d bulk frames, want %q and 30", got, bulk[1], want)
		}
		stop()
		a.Close(nil)
	})
}

// Control messages to a peer that takes nothing: an error at once when the queue is
// full, and the connection's end when that lasts.
func TestControlQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, controller("c"), router("r"), wire.ALPNCtrl)
		defer b.Close(nil)
		n.Silence("c", "r")
		m := &wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Data: make([]byte, wire.MaxRelay)}}}
		var err error
		count := 0
		for err == nil {
			err = a.Notify(m)
			synctest.Wait()
			count++
		}
		if !errors.Is(err, ErrQueueFull) || count > 200 {
			t.Fatalf("got %v after %d messages, want a full queue", err, count)
		}
		pass(stuckAfter + time.Millisecond)
		if err = a.Notify(m); !errors.Is(err, ErrStuck) || !errors.Is(a.Err(), ErrStuck) {
			t.Errorf("got %v, connection %v, want both stuck", err, a.Err())
		}
	})
}

// What may be lost is refused while much waits, which costs the connection nothing,
// and what must not be lost still has room.
func TestOfferLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, router("r"), controller("c"), wire.ALPNCtrl)
		stop := run(receiver{message: func(*wire.Message) error { return nil }}, b)
		defer stop()
		defer a.Close(nil)
		n.Silence("r", "c")
		m := &wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Data: make([]byte, 1024)}}}
		refused := func() bool {
			err := a.Offer(m)
			synctest.Wait()
			if err != nil && !errors.Is(err, ErrQueueFull) {
				t.Fatal(err)
			}
			return err != nil
		}
		for count := 0; !refused(); count++ {
			if count > 1000 {
				t.Fatal("it is never refused")
			}
		}
		pass(stuckAfter + time.Millisecond)
		if !refused() || a.Err() != nil {
			t.Errorf("offered to a peer that takes nothing: %v", a.Err())
		}
		for range 10 {
			must(t, a.Notify(m))
		}
		n.Resume("r", "c")
		pass(time.Second)
		if refused() {
			t.Error("refused when nothing waits")
		}
	})
}

// flaky is a socket that is full at random, and takes only a part at random.
type flaky struct {
	conn  net.Conn
	rng   *rand.Rand
	full  int // how often it was
	reads *rand.Rand
}

func (f *flaky) write(p []byte) (int, error) {
	if f.rng.IntN(3) == 0 {
		f.full++
		return 0, errWouldBlock
	}
	return f.conn.Write(p[:1+f.rng.IntN(len(p))])
}

func (f *flaky) read(wait bool) (*[rawBuffer]byte, int, error) {
	if !wait && f.reads.IntN(2) == 0 {
		return nil, 0, errWouldBlock
	}
	in := rawBuffers.Get().(*[rawBuffer]byte)
	n, err := f.conn.Read(in[:])
	return in, n, err
}

// The switch between callers and the writer goroutine, again and again, with
// many goroutines that send. No frame is lost, doubled or out of its queue's
// order, and nothing stays behind when all are done.
func TestSwitchKeepsOrder(t *testing.T) {
	a, b := plainPair(t, pipe.New(), router("r1"), router("r2"), wire.ALPNLink)
	socket := &flaky{conn: a.raw.Conn, rng: rand.New(rand.NewPCG(1, 1)), reads: rand.New(rand.NewPCG(2, 2))}
	a.raw.sys = socket
	const senders, frames = 3, 1500
	next := make([]uint32, senders)
	total := 0
	done := make(chan struct{})
	stopB := run(receiver{frame: func(_ *Batch, h wire.Header, frame []byte) error {
		if h.Type != wire.Data {
			return nil
		}
		i := binary.BigEndian.Uint32(frame[wire.HeaderSize:])
		if i != next[h.Label-1] {
			return fmt.Errorf("queue %d: got %d, want %d", h.Label, i, next[h.Label-1])
		}
		next[h.Label-1]++
		if total++; total == senders*frames {
			close(done)
		}
		return nil
	}}, b)
	defer stopB()
	defer run(receiver{}, a)()
	var g sync.WaitGroup
	for s := range senders {
		g.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(s)))
			q := a.NewQueue()
			var batch Batch
			payload := make([]byte, wire.MaxPayload)
			for i := range uint32(frames) {
				// Mostly all that waits is to be gone first: the writer goroutine
				// gets to its end often.
				if q.Wait(t.Context(), []int{1, 1, 64 << 10}[rng.IntN(3)]) != nil {
					return
				}
				binary.BigEndian.PutUint32(payload, i)
				size := 4 + rng.IntN(wire.MaxPayload-3)
				if rng.IntN(2) == 0 {
					size = 4 + rng.IntN(60)
				}
				use := &batch
				if rng.IntN(3) == 0 {
					use = nil
				}
				if a.SendData(use, q, dataFrame(uint32(s+1), payload[:size])) != nil {
					return
				}
				if rng.IntN(4) == 0 {
					batch.Flush()
					_ = a.SendFrame(nil, wire.AppendUint64Frame(nil, uint32(s+1), wire.Ack, uint64(i)))
				}
			}
			batch.Flush()
		})
	}
	g.Wait()
	select {
	case <-done:
	case <-b.Done():
		t.Fatal(b.Err())
	case <-time.After(15 * time.Second):
		t.Fatal("stalled")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if socket.full < 50 {
		t.Errorf("the socket was full %d times: too seldom to show anything", socket.full)
	}
}

// A frame that waits for a batch is out before the reader waits: one process
// passes frames from one connection to the next, idle, with no other flush.
func TestBatchIsFlushedBeforeWaiting(t *testing.T) {
	in, mid := tlsPair(t, wire.ALPNLink)
	out, end := tlsPair(t, wire.ALPNLink)
	q := out.NewQueue()
	got := make(chan struct{})
	defer run(receiver{frame: func(b *Batch, _ wire.Header, frame []byte) error {
		wire.PutLabel(frame, 9)
		return out.SendData(b, q, frame)
	}}, mid)()
	defer run(receiver{frame: func(_ *Batch, h wire.Header, _ []byte) error {
		if h.Label == 9 {
			got <- struct{}{}
		}
		return nil
	}}, end)()
	defer run(receiver{}, in, out)()
	source := in.NewQueue()
	for range 100 {
		must(t, in.SendData(nil, source, dataFrame(1, []byte("ping"))))
		select {
		case <-got:
		case <-time.After(5 * time.Second):
			t.Fatal("the frame stayed behind")
		}
	}
}

// Warm, a data frame through a connection costs no allocation of ours: sealed,
// written, read, opened and handed over. crypto/tls makes one small reader for
// each record that it has to fetch.
func TestDataFramesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget on purpose")
	}
	a, b := tlsPair(t, wire.ALPNLink)
	got := make(chan struct{}, 1)
	defer run(receiver{frame: func(*Batch, wire.Header, []byte) error {
		got <- struct{}{}
		return nil
	}}, b)()
	defer run(receiver{}, a)()
	q := a.NewQueue()
	for _, size := range []int{100, wire.MaxPayload} {
		frame := dataFrame(1, make([]byte, size))
		pass := func() {
			if err := a.SendData(nil, q, frame); err != nil {
				t.Fatal(err)
			}
			<-got
		}
		for range 100 {
			pass()
		}
		// Fractions are the heartbeat's, and pools emptied by the collector.
		if n := testing.AllocsPerRun(2000, pass); n > 1 {
			t.Errorf("%d bytes: got %v allocations a frame, want that of crypto/tls", size, n)
		}
	}
}

// Sending alone allocates nothing at all, whether callers write or the writer
// goroutine does.
func TestSendingDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget on purpose")
	}
	a, b := tlsPair(t, wire.ALPNLink)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		buf := make([]byte, 64<<10)
		for {
			if _, err := b.raw.Conn.Read(buf); err != nil {
				return
			}
		}
	}()
	q := a.NewQueue()
	frame := dataFrame(1, make([]byte, wire.MaxPayload))
	pass := func() {
		if q.Wait(t.Context(), 64<<10) != nil || a.SendData(nil, q, frame) != nil {
			t.Fatal(a.Err())
		}
	}
	for range 1000 {
		pass()
	}
	// Waiting for room makes a channel, once for many frames.
	if n := testing.AllocsPerRun(5000, pass); n >= 1 {
		t.Errorf("got %v allocations a frame, want 0", n)
	}
	b.Close(nil)
	<-drained
}

// What waits in queues comes from pools: neither does that allocate.
func TestQueuedFramesDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget on purpose")
	}
	c := &Conn{}
	q1, q2 := c.NewQueue(), c.NewQueue()
	frame := dataFrame(1, make([]byte, wire.MaxPayload))
	pass := func() {
		for range 4 {
			c.bulk.push(q1, frame)
			c.bulk.push(q2, frame)
		}
		for b := c.bulk.pop(); b != nil; b = c.bulk.pop() {
			b.free()
		}
	}
	pass()
	if n := testing.AllocsPerRun(1000, pass); n >= 1 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func TestBadFrameEndsConnection(t *testing.T) {
	for name, bytes := range map[string][]byte{
		"too long":        {0, 0, 0, 1, 3, 0, 0xff, 0xff},
		"short probe":     {0, 0, 0, 0, 2, 0, 0, 1, 0},
		"unsent probe":    {0, 0, 0, 0, 2, 1, 0, 8, 0xff, 0, 0, 0, 0, 0, 0, 0},
		"broken message":  {0, 0, 0, 0, 1, 0, 0, 1, 0xff},
		"future response": {0, 0, 0, 0, 2, 1, 0, 8, 0x7f, 0, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := plainPair(t, pipe.New(), router("r1"), router("r2"), wire.ALPNLink)
				_, err := a.raw.Write(bytes)
				must(t, err)
				if err := b.Run(t.Context(), receiver{}); !errors.Is(err, wire.ErrFrame) {
					t.Errorf("got %v, want a malformed frame", err)
				}
				a.Close(nil)
			})
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
