// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// local is a network of real sockets for Shape to stand on.
type local struct{}

func (local) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", hostport)
}

func (local) Listen(hostport string) (net.Listener, error) { return net.Listen("tcp", hostport) }

// connect gives both ends of a connection from host a to a listener of host b.
func connect(t testing.TB, dial, listen Under, hostport string) (net.Conn, net.Conn, string) {
	t.Helper()
	l, err := listen.Listen(hostport)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := dial.Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b, l.Addr().String()
}

func TestConnIsNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := New()
		a, b, _ := connect(t, n.Host("a"), n.Host("b"), "b:1")
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

func TestShapedConnIsNetConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		s := NewShape(local{})
		a, b, _ := connect(t, s, s, "127.0.0.1:0")
		return a, b, func() { a.Close(); b.Close(); s.Close() }, nil
	})
}

// networks runs a test over the network in memory and over a shaped one below
// which lies another in memory. set says both what the test needs.
func networks(t *testing.T, test func(t *testing.T, f faults)) {
	t.Run("network", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			a, b, _ := connect(t, n.Host("a"), n.Host("b"), "b:1")
			test(t, faults{
				a: a, b: b,
				latency: func(d time.Duration) { n.SetLatency("a", "b", d) },
				silence: func(on bool) {
					for _, w := range []way{{"a", "b"}, {"b", "a"}} {
						if on {
							n.Silence(w.from, w.to)
						} else {
							n.Resume(w.from, w.to)
						}
					}
				},
				cut: func() { n.Cut("b", "") },
			})
			a.Close()
			b.Close()
		})
	})
	t.Run("shape", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			s := NewShape(n)
			a, b, at := connect(t, s, n, "b:1")
			test(t, faults{
				a: a, b: b,
				latency: func(d time.Duration) { s.SetLatency(at, d) },
				silence: s.Silence,
				cut:     func() { s.Cut(at) },
			})
			a.Close()
			b.Close()
			s.Close()
		})
	})
}

type faults struct {
	a, b    net.Conn
	latency func(time.Duration)
	silence func(bool)
	cut     func()
}

func exchange(t *testing.T, from, to net.Conn, text string) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got, err, text)
	}
	return time.Since(start)
}

func TestLatency(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		if d := exchange(t, f.a, f.b, "x"); d != 0 {
			t.Errorf("got %v, want 0", d)
		}
		f.latency(50 * time.Millisecond)
		for range 2 {
			if d := exchange(t, f.a, f.b, "x"); d != 25*time.Millisecond {
				t.Errorf("got %v, want 25ms", d)
			}
			if d := exchange(t, f.b, f.a, "x"); d != 25*time.Millisecond {
				t.Errorf("back: got %v, want 25ms", d)
			}
		}
	})
}

// Less latency while bytes are on the way does not let later ones overtake.
func TestNoReordering(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		rng := rand.New(rand.NewPCG(7, 7))
		var sent []byte
		go func() {
			for i := range 500 {
				f.latency(time.Duration(rng.IntN(100)) * time.Millisecond)
				p := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(3000))
				sent = append(sent, p...)
				f.a.Write(p)
				pass(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
			f.a.Close()
		}()
		got, err := io.ReadAll(f.b)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("got %d bytes, %v, want the %d sent in order", len(got), err, len(sent))
		}
	})
}

// In silence nothing arrives, not even an end; deadlines hold; afterwards all
// arrives.
func TestSilence(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		f.silence(true)
		if _, err := io.WriteString(f.a, "kept"); err != nil {
			t.Fatal(err)
		}
		f.a.(interface{ CloseWrite() error }).CloseWrite()
		start := time.Now()
		f.b.SetReadDeadline(start.Add(time.Minute))
		_, err := f.b.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("got %v after %v, want the deadline after 1m", err, time.Since(start))
		}
		f.b.SetReadDeadline(time.Time{})
		f.silence(false)
		if got, err := io.ReadAll(f.b); err != nil || string(got) != "kept" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// A writer into silence waits when the buffer is full: memory is bounded.
func TestSilenceIsBounded(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		f.silence(true)
		f.a.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := f.a.Write(make([]byte, 2*shapedBuffer))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > shapedBuffer {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
	})
}

func TestCut(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		f.cut()
		if _, err := f.a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: got %v, want a reset", err)
		}
		if _, err := f.b.Read(make([]byte, 1)); err == nil {
			t.Error("the other end read from a cut connection")
		}
	})
}

func TestDialIntoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		n.Silence("", "b")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := n.Host("a").Dial(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		time.AfterFunc(time.Second, func() { n.Resume("", "b") })
		n.SetLatency("a", "b", 10*time.Millisecond)
		start = time.Now()
		c, err := n.Host("a").Dial(t.Context(), "b:1")
		if err != nil || time.Since(start) != 1010*time.Millisecond {
			t.Fatalf("got %v after %v, want a connection after 1.01s", err, time.Since(start))
		}
		c.Close()
		if _, err := n.Dial(t.Context(), "nobody:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want refused", err)
		}
	})
}

// One way only.
func TestOneWaySilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		a, b, _ := connect(t, n.Host("a"), n.Host("b"), "b:1")
		n.Silence("a", "b")
		exchange(t, b, a, "still")
		a.Write([]byte("x"))
		b.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v, want silence", err)
		}
		a.Close()
		b.Close()
	})
}

// pass lets the time of a synctest bubble pass.
func pass(d time.Duration) { <-time.After(d) }

// The end of one direction is no end of the other.
func TestL60_HalfCloseThenAnAnswer(t *testing.T) {
	networks(t, func(t *testing.T, f faults) {
		if err := closeWrite(f.a); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(f.b); err != nil || len(got) != 0 {
			t.Errorf("b: got %q, %v", got, err)
		}
		exchange(t, f.b, f.a, "answer")
		f.b.Close()
		if got, err := io.ReadAll(f.a); err != nil || len(got) != 0 {
			t.Errorf("a: got %q, %v", got, err)
		}
	})
}
