// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair gives the two ends of a flow over a stream of the operating system.
func pair(t testing.TB, cfg Config) (a, b *Conn) {
	t.Helper()
	x, y := streams(t)
	a, b = New(x, cfg), New(y, cfg)
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

func streams(t testing.TB) (x, y net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if x, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if y, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{x, y} {
		t.Cleanup(func() { _ = c.Close() })
	}
	return x, y
}

func TestSizesAndOrder(t *testing.T) {
	a, b := pair(t, Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 2, 3, 0, 0, 512, 1472, 1500, 16 << 10, MaxSize - 1, MaxSize, 0, 9}
	for range 2000 {
		sizes = append(sizes, rng.IntN(1500))
	}
	content := func(i int) []byte {
		p := bytes.Repeat([]byte{byte(i)}, sizes[i])
		if len(p) >= 4 {
			binary.BigEndian.PutUint32(p, uint32(i))
		}
		return p
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for i := range sizes {
			for a.queued()+2*MaxSize > QueueSize { // or some would be dropped
				runtime.Gosched()
			}
			if n, err := a.Write(content(i)); n != sizes[i] || err != nil {
				t.Errorf("write %d: %d, %v", i, n, err)
			}
		}
		_ = a.Close()
	})
	p := make([]byte, 1<<17)
	for i := range sizes {
		n, err := b.Read(p)
		if err != nil || !bytes.Equal(p[:n], content(i)) {
			t.Fatalf("datagram %d: %d bytes, %v, want %d", i, n, err, sizes[i])
		}
	}
	if _, err := b.Read(p); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last one: %v", err)
	}
	if s := b.Stats(); s.Received != uint64(len(sizes)) {
		t.Errorf("stats %+v", s)
	}
}

func (c *Conn) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queuedLocked()
}

// What a buffer has no room for is lost, and no more than that.
func TestShortBuffer(t *testing.T) {
	a, b := pair(t, Config{})
	for _, text := range []string{"hello world", "second", "", "third"} {
		if _, err := a.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	p := make([]byte, 5)
	for _, want := range []string{"hello", "secon", "", "third"} {
		if n, err := b.Read(p); err != nil || string(p[:n]) != want {
			t.Errorf("got %q, %v, want %q", p[:n], err, want)
		}
	}
	if size, err := func() (int, error) { _, _ = a.Write(make([]byte, 300)); return b.Next() }(); size != 300 || err != nil {
		t.Errorf("next: %d, %v", size, err)
	}
	if n, err := b.Read(nil); n != 0 || err != nil {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
	_, _ = a.Write([]byte("x"))
	if n, err := b.Read(p); string(p[:n]) != "x" || err != nil {
		t.Errorf("got %q, %v", p[:n], err)
	}
}

// Nobody reads: Write does not wait, drops what the queue has no room for, and
// what was queued comes whole and in order.
func TestFullQueueDrops(t *testing.T) {
	near, far := net.Pipe() // takes nothing that is not read
	a, b := New(near, Config{}), New(far, Config{})
	defer a.Close()
	defer b.Close()
	const each, all = 1000, 1000
	p := make([]byte, each)
	start := time.Now()
	for i := range all {
		binary.BigEndian.PutUint32(p, uint32(i))
		if n, err := a.Write(p); n != each || err != nil {
			t.Fatal(n, err)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("writing took %v", took)
	}
	s := a.Stats()
	if fit := uint64(QueueSize / (each + header)); s.Sent != fit || s.Dropped != all-fit {
		t.Errorf("stats %+v, want %d sent", s, fit)
	}
	for i := range s.Sent {
		n, err := b.Read(p)
		if err != nil || n != each || binary.BigEndian.Uint32(p) != uint32(i) {
			t.Fatalf("datagram %d: %d bytes, number %d, %v", i, n, binary.BigEndian.Uint32(p), err)
		}
	}
	if _, err := a.Write(p); err != nil { // there is room again
		t.Fatal(err)
	}
	if n, err := b.Read(p); n != each || err != nil {
		t.Error(n, err)
	}
	if s := a.Stats(); s.Sent+s.Dropped != all+1 || s.Dropped != all-uint64(QueueSize/(each+header)) {
		t.Errorf("stats %+v", s)
	}
}

func TestTooLong(t *testing.T) {
	a, _ := pair(t, Config{})
	if _, err := a.Write(make([]byte, MaxSize+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("got %v", err)
	}
	if s := a.Stats(); s.Sent != 0 || s.Dropped != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestDeadlines(t *testing.T) {
	x, y := streams(t)
	b := New(y, Config{})
	defer b.Close()
	p := make([]byte, 100)
	// In the middle of a length, and of a datagram: nothing of it is lost.
	for _, part := range []string{"\x00", "\x05he", "llo\x00\x00"} {
		if _, err := io.WriteString(x, part); err != nil {
			t.Fatal(err)
		}
		_ = b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		n, err := b.Read(p)
		if part == "llo\x00\x00" {
			if err != nil || string(p[:n]) != "hello" {
				t.Errorf("got %q, %v", p[:n], err)
			}
		} else if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("behind %q: %d, %v", part, n, err)
		}
	}
	_ = b.SetReadDeadline(time.Time{})
	if n, err := b.Read(p); n != 0 || err != nil {
		t.Errorf("the empty one: %d, %v", n, err)
	}
	_ = b.SetWriteDeadline(time.Now().Add(-time.Second))
	if _, err := b.Write(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	_ = b.SetDeadline(time.Time{})
	if _, err := b.Write(p); err != nil {
		t.Error(err)
	}
	// A deadline that is set wakes a Read that waits.
	woken := make(chan error)
	go func() { _, err := b.Read(p); woken <- err }()
	_ = b.SetReadDeadline(time.Unix(1, 0))
	if err := <-woken; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("woken with %v", err)
	}
}

func TestClose(t *testing.T) {
	a, b := pair(t, Config{})
	woken := make(chan error)
	go func() { _, err := a.Read(make([]byte, 1)); woken <- err }()
	for range 100 {
		if _, err := a.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	_ = a.Close()
	if err := <-woken; !errors.Is(err, net.ErrClosed) {
		t.Errorf("woken with %v", err)
	}
	if _, err := a.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write: %v", err)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	got := 0
	if err := b.Each(func([]byte) error { got++; return nil }); err != nil || got != 100 { // what was queued is sent
		t.Errorf("%d came, %v", got, err)
	}
}

// The stream ends within a datagram, or holds something else.
func TestBrokenStream(t *testing.T) {
	for text, want := range map[string]error{
		"\x00":                  io.ErrUnexpectedEOF,
		"\x00\x05hel":           io.ErrUnexpectedEOF,
		"\xff\xffsomething":     ErrMalformed,
		"\x00\x01x\xff\xe4what": ErrMalformed,
		"":                      io.EOF,
		"\x00\x00\x00\x01x":     io.EOF,
	} {
		x, y := streams(t)
		b := New(y, Config{})
		_, _ = io.WriteString(x, text)
		_ = x.Close()
		var err error
		for p := make([]byte, 10); err == nil; {
			_, err = b.Read(p)
		}
		if !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
		_ = b.Close()
	}
}

func TestWriteSaysWhyTheStreamEnded(t *testing.T) {
	near, far := net.Pipe()
	a := New(near, Config{})
	defer a.Close()
	_ = far.Close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := a.Write([]byte("x")); err != nil {
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("got %v", err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("writes go on")
		}
	}
}

// Idle times are exact, and questions with answers end sooner.
func TestIdleTimeout(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		run  func(a, b *Conn)
		want time.Duration
	}{
		{"never used", Config{Idle: time.Minute}, func(_, _ *Conn) {}, time.Minute},
		{"used once", Config{Idle: time.Minute}, func(a, b *Conn) {
			time.Sleep(50 * time.Second)
			_, _ = a.Write([]byte("x"))
			_, _ = b.Read(make([]byte, 1))
		}, 110 * time.Second},
		{"kept alive by what comes", Config{Idle: time.Minute}, func(a, b *Conn) {
			for range 10 {
				time.Sleep(30 * time.Second)
				_, _ = b.Write([]byte("x"))
				_, _ = a.Read(make([]byte, 1))
			}
		}, 6 * time.Minute},
		{"answered", Config{Idle: time.Minute, Answered: time.Second}, func(a, b *Conn) {
			ask(a, b, 2)
			time.Sleep(500 * time.Millisecond)
			ask(a, b, 1)
		}, 1500 * time.Millisecond},
		{"a question is open", Config{Idle: time.Minute, Answered: time.Second}, func(a, b *Conn) {
			ask(a, b, 1)
			_, _ = a.Write([]byte("anybody?"))
			_, _ = b.Read(make([]byte, 10))
		}, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				a, b := New(near, c.cfg), New(far, Config{})
				start := time.Now()
				c.run(a, b)
				_, err := a.Read(make([]byte, 1))
				if took := time.Since(start); took != c.want || !errors.Is(err, ginnel.IdleTimeout) {
					t.Errorf("ended after %v with %v, want %v", took, err, c.want)
				}
				if _, err := a.Write(nil); !errors.Is(err, ginnel.IdleTimeout) {
					t.Errorf("write: %v", err)
				}
				if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
					t.Errorf("other end: %v", err)
				}
				_ = b.Close()
				time.Sleep(time.Hour) // no timer is left that does harm
			})
		})
	}
}

// ask sends questions from a, and answers to each from b.
func ask(a, b *Conn, n int) {
	p := make([]byte, 10)
	for range n {
		_, _ = a.Write([]byte("who?"))
		_, _ = b.Read(p)
	}
	for range n {
		_, _ = b.Write([]byte("me"))
		_, _ = a.Read(p)
	}
}

// A peer that reads nothing does not keep a closed Conn.
func TestCloseDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		a := New(near, Config{})
		_, _ = a.Write(make([]byte, 10_000))
		synctest.Wait()
		_ = a.Close()
		time.Sleep(linger)
		synctest.Wait()
		if _, err := io.ReadAll(far); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
}

// join joins two and gives what failed.
func join(socket net.Conn, flow *Conn) <-chan error {
	joined := make(chan error, 1)
	go func() {
		var failed error
		Join(socket, flow, func(err error) { failed = err })
		joined <- failed
	}()
	return joined
}

func TestJoin(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		p := make([]byte, 1<<17)
		for {
			n, from, err := server.ReadFrom(p)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(p[:n], from)
		}
	})
	a, b := pair(t, Config{})
	socket, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	joined := join(socket, b)
	p := make([]byte, 1<<17)
	for _, size := range []int{0, 1, 1000, 9000, MaxSize, 0, 3} {
		want := bytes.Repeat([]byte{byte(size)}, size)
		if _, err := a.Write(want); err != nil {
			t.Fatal(err)
		}
		_ = a.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := a.Read(p); err != nil || !bytes.Equal(p[:n], want) {
			t.Errorf("size %d: %d bytes, %v", size, n, err)
		}
	}
	_ = a.Close()
	if err := <-joined; err != nil {
		t.Errorf("joined: %v", err)
	}
	_ = server.Close()
	serving.Wait()
}

// A closed port ends the flow, and the cause is known.
func TestJoinRefused(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := server.LocalAddr().String()
	_ = server.Close()
	a, b := pair(t, Config{})
	socket, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	joined := join(socket, b)
	_, _ = a.Write([]byte("anybody?"))
	if err := <-joined; !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("joined: %v", err)
	}
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("other end: %v", err)
	}
}

func TestNoAllocationPerDatagram(t *testing.T) {
	if testing.Short() || raceOn {
		t.Skip("skipped: the race detector allocates")
	}
	a, b := pair(t, Config{Idle: time.Minute, Answered: time.Second})
	p, q := make([]byte, 1200), make([]byte, 1500)
	round := func() {
		_, err := a.Write(p)
		if err == nil {
			_, err = b.Read(q)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		round()
	}
	if n := testing.AllocsPerRun(2000, round); n >= 0.05 {
		t.Errorf("%v allocations a datagram", n)
	}
}

// Whatever comes, reading ends in datagrams or an error, and what was framed
// comes out as it went in.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x05hello\x00\x00\x00\x01x"), 10)
	f.Add([]byte("\xff\xff"), 0)
	f.Add([]byte("\x00"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, room int) {
		if room < 0 || room > 1<<16 {
			return
		}
		c := New(script{bytes.NewReader(stream)}, Config{})
		defer c.Close()
		p := make([]byte, room)
		at := 0
		for {
			n, err := c.Read(p)
			whole := at+header <= len(stream)
			size := 0
			if whole {
				size = int(binary.BigEndian.Uint16(stream[at:]))
				whole = size <= MaxSize && at+header+min(size, room) <= len(stream)
			}
			if err != nil {
				if whole {
					t.Fatalf("at %d: %v", at, err)
				}
				return
			}
			if !whole || n != min(size, room) || !bytes.Equal(p[:n], stream[at+header:at+header+n]) {
				t.Fatalf("at %d: %d bytes %q", at, n, p[:n])
			}
			at += header + size
		}
	})
}

// script is a stream of which all is known.
type script struct{ *bytes.Reader }

func (script) Write(p []byte) (int, error)      { return len(p), nil }
func (script) Close() error                     { return nil }
func (script) LocalAddr() net.Addr              { return nil }
func (script) RemoteAddr() net.Addr             { return nil }
func (script) SetDeadline(time.Time) error      { return nil }
func (script) SetReadDeadline(time.Time) error  { return nil }
func (script) SetWriteDeadline(time.Time) error { return nil }

// Many write and close at once: no datagram is torn.
func TestManyWriters(t *testing.T) {
	a, b := pair(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var writing sync.WaitGroup
	for w := range 8 {
		writing.Go(func() {
			p := bytes.Repeat([]byte(fmt.Sprintf("%d", w)), 700)
			for i := 0; i < 500 && ctx.Err() == nil; i++ {
				_, _ = a.Write(p[:i])
			}
		})
	}
	go func() { writing.Wait(); _ = a.Close() }()
	got := 0
	err := b.Each(func(p []byte) error {
		got++
		for _, c := range p {
			if c != p[0] {
				return errors.New("torn")
			}
		}
		return nil
	})
	if s := a.Stats(); err != nil || uint64(got) != s.Sent || s.Sent+s.Dropped != 8*500 {
		t.Errorf("%d came, %v, %+v", got, err, s)
	}
}

func BenchmarkWriteRead(b *testing.B) {
	x, y := pair(b, Config{})
	p, q := make([]byte, 1400), make([]byte, 1500)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = x.Write(p)
		if _, err := y.Read(q); err != nil {
			b.Fatal(err)
		}
	}
}
