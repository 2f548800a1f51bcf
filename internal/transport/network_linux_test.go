// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// An address that swallows everything takes its share of the time, not all of it.
func TestDialNameWithBlackHole(t *testing.T) {
	l, hole := fullListener(t)
	defer l.Close()
	good, err := net.Listen("tcp", "127.0.0.3:"+hole)
	if err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	defer good.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := OS{Resolver: names(t, "127.0.0.2", "127.0.0.3")}.Dial(ctx, "router.example:"+hole)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.RemoteAddr().String(); got != "127.0.0.3:"+hole {
		t.Errorf("connected to %s", got)
	}
	_ = c.Close()
}

// fullListener gives a listener at 127.0.0.2 whose queue is full: the kernel
// drops further attempts to connect, without a word.
func fullListener(t *testing.T) (*os.File, string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}); err != nil {
		t.Skipf("no second loopback address: %v", err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
	c, err := net.Dial("tcp", "127.0.0.2:"+port) // the one that the queue holds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return f, port
}
