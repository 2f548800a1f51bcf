// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// datagrams runs a server for the test and gives the way to it.
func datagrams(t *testing.T) Dial {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var s DatagramServer
	go func() { ended <- s.Serve(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}
}

// every loses each nth datagram that is to be counted.
type every struct {
	net.Conn
	n, sent int
}

func (e *every) Write(p []byte) (int, error) {
	if p[0] == countMe || p[0] == sendBack {
		if e.sent++; e.sent%e.n == 0 {
			return len(p), nil
		}
	}
	return e.Conn.Write(p)
}

func losing(dial Dial, n int) Dial {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		return &every{Conn: conn, n: n}, err
	}
}

// torn is a socket that fails once with each error.
type torn struct {
	net.PacketConn
	errs []error
}

func (s *torn) ReadFrom([]byte) (int, net.Addr, error) {
	err := s.errs[0]
	s.errs = s.errs[1:]
	return 0, nil, err
}

// A server outlives a program that is gone, and nothing else.
func TestServeDatagramsEnds(t *testing.T) {
	broken := errors.New("broken")
	err := new(DatagramServer).Serve(t.Context(), &torn{errs: []error{syscall.ECONNREFUSED, syscall.ECONNREFUSED, broken}})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestSendDatagrams(t *testing.T) {
	var told atomic.Int64
	got, err := SendDatagrams(t.Context(), datagrams(t), Flood{Size: 100, Rate: 400, Duration: 250 * time.Millisecond, Live: func(DatagramFlow) { told.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	if got.Sent < 1 || got.Sent > 101 || got.Arrived != got.Sent || got.Loss != 0 || got.Size != 100 || got.Seconds < 0.25 || got.PerSecond <= 0 || got.Gbits <= 0 {
		t.Errorf("got %+v", got)
	}
	if told.Load() == 0 {
		t.Error("it was not told how it goes")
	}
}

func TestSendDatagramsCountsLosses(t *testing.T) {
	got, err := SendDatagrams(t.Context(), losing(datagrams(t), 4), Flood{Size: LeastDatagram, Rate: 1000, Duration: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if want := got.Sent - got.Sent/4; got.Sent < 4 || got.Arrived != want {
		t.Errorf("got %+v, want %d to arrive", got, want)
	}
}

func TestEchoDatagrams(t *testing.T) {
	d, flow, err := EchoDatagrams(t.Context(), losing(datagrams(t), 5), 1200, Bound{Count: 6})
	if err != nil {
		t.Fatal(err)
	}
	if d.Count != 5 || flow.Sent != 6 || flow.Arrived != 5 || d.P50 <= 0 || flow.Size != 1200 {
		t.Errorf("got %+v, %+v", d, flow)
	}
}

func TestDatagramsRefuse(t *testing.T) {
	for name, f := range map[string]Flood{
		"small": {Size: LeastDatagram - 1, Duration: brief}, "large": {Size: MostDatagram + 1, Duration: brief},
		"no time": {Size: 100}, "negative": {Size: 100, Rate: -1, Duration: brief}, "too long": {Size: 100, Duration: MaxDuration + 1},
	} {
		if _, err := SendDatagrams(t.Context(), nil, f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, _, err := EchoDatagrams(t.Context(), nil, 1, Bound{Count: 1}); err == nil {
		t.Error("no error of a small echo")
	}
	if _, _, err := EchoDatagrams(t.Context(), nil, 100, Bound{}); err == nil {
		t.Error("no error of an echo without an end")
	}
}

func TestSendDatagramsToNobody(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0") // it does not answer
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*askEvery)
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}
	if _, err := SendDatagrams(ctx, dial, Flood{Size: 100, Duration: brief}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// Nothing that the server says is longer than what it was asked, and it remembers no
// more than so many runs.
func TestDatagramServerIsBounded(t *testing.T) {
	var s DatagramServer
	p := make([]byte, LeastDatagram)
	for _, kind := range []byte{countMe, howMany, sendBack, soMany, sentBack, 0, 'x'} {
		for size := range len(p) + 1 {
			b := make([]byte, size)
			if size > 0 {
				b[0] = kind
			}
			if answer := s.answer(b, nothing); len(answer) > size || size < LeastDatagram && answer != nil {
				t.Errorf("%q, %d bytes: it answers %d bytes", kind, size, len(answer))
			}
		}
	}
	for run := range uint64(3 * maxRuns) {
		p[0] = countMe
		binary.BigEndian.PutUint64(p[1:], run)
		s.answer(p, nothing)
	}
	if len(s.runs) != maxRuns {
		t.Errorf("it remembers %d runs, want %d", len(s.runs), maxRuns)
	}
	p[0] = howMany
	if answer := s.answer(p, nothing); binary.BigEndian.Uint64(answer[runHeader:]) != 1 {
		t.Errorf("got %x of the newest run", answer)
	}
}
