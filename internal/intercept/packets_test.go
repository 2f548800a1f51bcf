// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestPacketSockets(t *testing.T) {
	// All of 127.0.0.0/8 is local, as the range will be: no privileges needed.
	s := newPacketSockets(netip.MustParsePrefix("127.0.0.0/8"), 2, nil, slog.New(slog.DiscardHandler))
	var socket PacketSocket = s
	defer s.Close()
	port := freePort(t)
	a := netip.AddrPortFrom(netip.MustParseAddr("127.9.8.1"), port)
	b := netip.AddrPortFrom(netip.MustParseAddr("127.9.8.2"), port)
	c := netip.AddrPortFrom(netip.MustParseAddr("127.9.8.3"), port)
	if err := s.own.arrange([]netip.AddrPort{a, b}); err != nil {
		t.Fatal(err)
	}
	if err := s.own.arrange([]netip.AddrPort{a, b, c}); err == nil {
		t.Error("a third socket, of 2")
	}
	if err := s.own.arrange([]netip.AddrPort{a, netip.MustParseAddrPort("192.0.2.1:9")}); err == nil {
		t.Error("an address that is not in the range")
	}
	if err := s.own.arrange([]netip.AddrPort{a, b}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<16)
	for _, at := range []netip.AddrPort{a, b} {
		program, err := net.Dial("udp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		_ = program.SetDeadline(time.Now().Add(10 * time.Second))
		for _, size := range []int{0, 5, 1400, 65507} {
			p := bytes.Repeat([]byte{9}, size)
			if _, err := program.Write(p); err != nil {
				t.Fatal(err)
			}
			n, from, to, err := socket.ReadFrom(buf)
			if err != nil || to != at || from.String() != program.LocalAddr().String() || !bytes.Equal(buf[:n], p) {
				t.Fatalf("%d bytes from %v to %v, %v", n, from, to, err)
			}
			if err := socket.WriteTo(buf[:n], to, from); err != nil { // a connected socket takes it from at alone
				t.Fatal(err)
			}
			if n, err := program.Read(buf); err != nil || n != size {
				t.Errorf("%d bytes of %d came back: %v", n, size, err)
			}
		}
	}
	if err := s.own.arrange([]netip.AddrPort{b}); err != nil {
		t.Fatal(err)
	}
	if err := socket.WriteTo(nil, a, b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("answer from an address that is no longer taken: %v", err)
	}
	_ = socket.Close()
	if _, _, _, err := socket.ReadFrom(buf); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
}
