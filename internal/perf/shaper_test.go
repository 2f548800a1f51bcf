// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// Bytes take the way's time and the link's, all of them come, and the end does.
func TestShaperTakesItsTime(t *testing.T) {
	behind, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer behind.Close()
	go func() { // an echo that ends when its stream does
		conn, err := behind.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	shaper := Shaper{Next: behind.Addr().String(), Delay: 30 * time.Millisecond, Rate: 4 << 20}
	go func() { served <- shaper.Serve(ctx, listener) }()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<15) // 512 KiB: 125 ms at this rate
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 60*time.Millisecond {
		t.Errorf("the first byte came back after %v, want at least 60 ms", took)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(append(first, rest...), sent) {
		t.Errorf("got %d bytes, %v, want %d", 1+len(rest), err, len(sent))
	}
	if took := time.Since(start); took < 180*time.Millisecond {
		t.Errorf("all came back after %v, want at least 185 ms", took)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
