// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// Queues with much to send get equal shares, whatever the sizes of their
// frames, and none loses order.
func TestSharesAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Conn{}
		sizes := rapid.SliceOfN(rapid.IntRange(wire.HeaderSize, wire.MaxFrame), 2, 6).Draw(t, "sizes")
		queues := make([]*Queue, len(sizes))
		const each = 40 * quantum
		for i, size := range sizes {
			queues[i] = c.NewQueue()
			frame := bytes.Repeat([]byte{byte(i)}, size)
			for queues[i].frames.bytes < each {
				c.bulk.push(queues[i], frame)
			}
		}
		sent := make([]int, len(sizes))
		for total := 0; total < each; {
			b := c.bulk.pop()
			sent[b.b[0]] += len(b.b)
			total += len(b.b)
			b.free()
		}
		if most, least := slices.Max(sent), slices.Min(sent); most-least > 3*quantum {
			t.Fatalf("sent %v bytes, want equal shares", sent)
		}
		c.bulk.clear()
	})
}

// A queue that had nothing to send does not wait for those that have much; and
// by sending a little again and again it gets no more than its share.
func TestSparseQueueGoesFirst(t *testing.T) {
	c := &Conn{}

	full := make([]byte, wire.MaxFrame)
	for range 10 {
		q := c.NewQueue()
		for range 20 {
			c.bulk.push(q, full)
		}
	}
	for range 30 {
		c.bulk.pop().free()
	}
	sparse := c.NewQueue()
	c.bulk.push(sparse, full[:64])
	if b := c.bulk.pop(); len(b.b) != 64 {
		t.Errorf("a bulk frame came before the sparse one")
	}
	mine := 0
	for range 110 {
		if sparse.frames.bytes == 0 {
			c.bulk.push(sparse, full)
		}
		b := c.bulk.pop()
		b.free()
		if sparse.frames.bytes == 0 {
			mine++
		}
	}
	if mine > 22 {
		t.Errorf("got %d of 110 turns, want no more than about its share of 10", mine)
	}
	c.bulk.clear()
}

// Who waits for room is woken by the writer, by Drop and by the end, and looks
// again.
func TestWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, router("r1"), router("r2"), wire.ALPNLink)
		defer run(receiver{}, b)()
		const limit = 64 << 10
		q := a.NewQueue()
		fill := func() {
			for q.Len() < limit {
				must(t, a.SendData(nil, q, dataFrame(1, make([]byte, wire.MaxPayload))))
				synctest.Wait()
			}
		}
		wait := func() chan error {
			ch := make(chan error, 1)
			go func() { ch <- q.Wait(t.Context(), limit) }()
			synctest.Wait()
			select {
			case err := <-ch:
				t.Fatalf("did not wait: %v", err)
			default:
			}
			return ch
		}
		n.Silence("r1", "r2")
		fill()
		ch := wait()
		n.Resume("r1", "r2")
		must(t, <-ch)

		n.Silence("r1", "r2")
		fill()
		ch = wait()
		q.Drop()
		must(t, <-ch)

		fill()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := q.Wait(ctx, limit); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		ch = wait()
		a.Close(nil)
		if err := <-ch; !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want closed", err)
		}
		if err := a.SendData(nil, q, dataFrame(1, nil)); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want closed", err)
		}
	})
}

// A peer that sends but takes nothing is given up.
func TestWedgedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := plainPair(t, pipe.New(), router("r1"), router("r2"), wire.ALPNLink)
		stop := run(receiver{}, a)
		q := a.NewQueue()
		for range 100 {
			must(t, a.SendData(nil, q, dataFrame(1, make([]byte, wire.MaxPayload))))
		}
		start := time.Now()
		for a.Err() == nil {
			b.probe(b.now())
			pass(time.Second)
		}
		if took := time.Since(start); !errors.Is(a.Err(), ErrStuck) || took > wedgedAfter+2*time.Second {
			t.Errorf("got %v after %v, want stuck after %v", a.Err(), took, wedgedAfter)
		}
		stop()
		b.Close(nil)
	})
}

// Frames come out as they went in, however the network cuts the bytes.
func TestFramesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := pipe.New()
		l, err := n.Listen("r:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		near, err := n.Dial(context.Background(), "r:1")
		if err != nil {
			t.Fatal(err)
		}
		far, _ := l.Accept()
		c := plainConn(far, router("x"), wire.ALPNLink)
		var stream []byte
		sizes := rapid.SliceOfN(rapid.IntRange(0, wire.MaxPayload), 1, 8).Draw(t, "sizes")
		for i, size := range sizes {
			stream = wire.AppendFrame(stream, uint32(i), wire.Data, 0, bytes.Repeat([]byte{byte(i)}, size))
		}
		cuts := rapid.SliceOfN(rapid.IntRange(1, len(stream)), 0, 6).Draw(t, "cuts")
		go func() {
			defer near.Close()
			for _, cut := range cuts {
				cut = min(cut, len(stream))
				_, _ = near.Write(stream[:cut])
				stream = stream[cut:]
			}
			_, _ = near.Write(stream)
		}()
		for i, size := range sizes {
			h, frame, err := c.next()
			if err != nil || h.Label != uint32(i) || h.Length != size {
				t.Fatalf("frame %d: got %+v, %v", i, h, err)
			}
			if !bytes.Equal(frame[wire.HeaderSize:], bytes.Repeat([]byte{byte(i)}, size)) {
				t.Fatalf("frame %d differs", i)
			}
		}
		if _, _, err := c.next(); err == nil {
			t.Fatal("a frame too many")
		}
		c.Close(nil)
	})
}

func TestSourceOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5":              "192.0.2.1",
		"[::ffff:192.0.2.1]:5":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:5": "2001:db8:1:2::/64",
	} {
		if got := sourceOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address))); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}
