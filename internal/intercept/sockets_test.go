// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

// freePort gives a port that was free on loopback just now.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port()
}

func TestSockets_ListenExactlyWhereWanted(t *testing.T) {
	// All of 127.0.0.0/8 is local, as the range will be: no privileges needed.
	s := newSockets(netip.MustParsePrefix("127.0.0.0/8"), 2, nil, slog.New(slog.DiscardHandler))
	defer func() { _ = s.Close() }()
	port := freePort(t)
	a := netip.AddrPortFrom(netip.MustParseAddr("127.9.9.1"), port)
	b := netip.AddrPortFrom(netip.MustParseAddr("127.9.9.2"), port)
	c := netip.AddrPortFrom(netip.MustParseAddr("127.9.9.3"), port)
	if err := s.own.arrange([]netip.AddrPort{a, b}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []netip.AddrPort{a, b} {
		dialed, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := s.Accept()
		if err != nil || conn.LocalAddr().String() != at.String() {
			t.Errorf("accepted %v, %v; want one to %s", conn.LocalAddr(), err, at)
		}
		_, _ = dialed.Close(), conn.Close()
	}
	if err := s.own.arrange([]netip.AddrPort{b, c}); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", a.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("unwanted address: got %v, want refused", err)
	}
	outside := netip.MustParseAddrPort("192.0.2.1:80")
	err := s.own.arrange([]netip.AddrPort{b, c, a, outside})
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:80 is not in") || !strings.Contains(err.Error(), "more than the 2") {
		t.Errorf("got %v, want errors about the bound and the range", err)
	}
	waiting, err := net.Dial("tcp", b.String()) // nobody accepts it
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection that was never accepted: got %v, want a reset", err)
	}
	_ = waiting.Close()
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: got %v", err)
	}
	if err := s.own.arrange(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("set after close: got %v", err)
	}
}

func TestSockets_TakenPortIsNamedAndTheOthersWork(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	at := taken.Addr().(*net.TCPAddr).AddrPort()
	s := newSockets(netip.MustParsePrefix("127.0.0.0/8"), 9, nil, slog.New(slog.DiscardHandler))
	defer func() { _ = s.Close() }()
	other := netip.AddrPortFrom(netip.MustParseAddr("127.9.9.4"), at.Port())
	if err := s.own.arrange([]netip.AddrPort{at, other}); err == nil || !strings.Contains(err.Error(), at.String()) {
		t.Errorf("got %v, want an error that names %s", err, at)
	}
	conn, err := net.Dial("tcp", other.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestOpen_RefusesBadRange(t *testing.T) {
	for _, pool := range []netip.Prefix{{}, netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/31")} {
		if i, err := Open(Config{Range: pool}); err == nil {
			t.Errorf("%s is accepted", pool)
			_ = i.Close()
		}
	}
}
