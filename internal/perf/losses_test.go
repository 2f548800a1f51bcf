// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ginnel/ginnel/sdk"
)

// counting is a connection that counts what it had no room for.
type counting struct{ every }

func (c *counting) Stats() sdk.PacketStats { return sdk.PacketStats{Dropped: uint64(c.sent / c.n)} }

// refusing does not take each fifth.
type refusing struct{ every }

func (r *refusing) Write(p []byte) (int, error) {
	if r.sent++; r.sent%r.n == 0 && p[0] == countMe {
		return 0, syscall.ENOBUFS
	}
	return r.Conn.Write(p)
}

// slow is a socket from which nothing is read while the gate is locked.
type slow struct {
	*net.UDPConn
	gate sync.RWMutex
}

func (s *slow) ReadFrom(p []byte) (int, net.Addr, error) {
	n, from, err := s.UDPConn.ReadFrom(p)
	s.gate.RLock()
	defer s.gate.RUnlock()
	return n, from, err
}

// Each loss is told with its place: at this end, in the server's socket, or between.
func TestLossesAreNamed(t *testing.T) {
	through := func(wrap func(net.Conn) net.Conn) Dial {
		dial := datagrams(t)
		return func(ctx context.Context) (net.Conn, error) {
			conn, err := dial(ctx)
			return wrap(conn), err
		}
	}
	for _, c := range []struct {
		name string
		wrap func(net.Conn) net.Conn
		of   func(Losses) int64
		text string
	}{
		{"queue", func(conn net.Conn) net.Conn { return &counting{every{Conn: conn, n: 4}} }, func(l Losses) int64 { return l.Queue }, "own queue"},
		{"refused", func(conn net.Conn) net.Conn { return &refusing{every{Conn: conn, n: 5}} }, func(l Losses) int64 { return l.Refused }, "not sent"},
		{"between", func(conn net.Conn) net.Conn { return &every{Conn: conn, n: 3} }, func(l Losses) int64 { return l.Elsewhere }, "elsewhere"},
	} {
		got, err := SendDatagrams(t.Context(), through(c.wrap), Flood{Size: 100, Rate: 500, Duration: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		lost := got.Sent - got.Arrived
		if c.of(got.Lost) != lost || lost < 2 || got.Lost.String() != fmt.Sprintf("%d %s", lost, c.text) {
			t.Errorf("%s: got %+v, %q", c.name, got, got.Lost)
		}
	}
}

// A server that is slow for a moment loses what its socket has no room for, and says so.
func TestLossesOfTheServersSocket(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: the system does not tell what sockets drop")
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slow{UDPConn: conn.(*net.UDPConn)}
	if err := s.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = new(DatagramServer).Serve(ctx, s) })
	defer serving.Wait()
	defer cancel()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}
	var once sync.Once
	flood := Flood{Size: 1200, Duration: 450 * time.Millisecond, Rate: 20_000, Live: func(now DatagramFlow) {
		once.Do(func() {
			s.gate.Lock() // the server does not read until the flood is nearly over
			time.AfterFunc(300*time.Millisecond, s.gate.Unlock)
		})
	}}
	got, err := SendDatagrams(t.Context(), dial, flood)
	if err != nil {
		t.Fatal(err)
	}
	if lost := got.Sent - got.Arrived; got.Lost.Server < 100 || got.Lost.Server != lost {
		t.Errorf("got %+v, %q", got, got.Lost)
	}
}
