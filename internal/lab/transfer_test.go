// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"
)

// stream is an endless sequence of bytes that never repeats, the same each time.
func stream() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{7}) }

// transfer sends size bytes to an echo server and compares what comes back: bulk
// in both directions at once. When a third is back it calls fault. It gives the
// longest time without a byte after that.
func transfer(conn net.Conn, size int, fault func() error) (gap time.Duration, err error) {
	if err := conn.SetDeadline(time.Now().Add(40 * time.Second)); err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- send(conn, size) }()
	defer func() {
		if err != nil {
			_ = conn.SetDeadline(time.Unix(1, 0)) // the sender waits no longer
		}
		err = errors.Join(err, <-sent)
	}()
	want := stream()
	got, expected := make([]byte, 64<<10), make([]byte, 64<<10)
	var last time.Time
	for n := 0; ; {
		m, err := conn.Read(got)
		if !last.IsZero() {
			gap = max(gap, time.Since(last))
			last = time.Now()
		}
		_, _ = want.Read(expected[:m])
		if !bytes.Equal(got[:m], expected[:m]) {
			return gap, fmt.Errorf("other bytes came back than were sent, between %d and %d", n, n+m)
		}
		n += m
		switch {
		case errors.Is(err, io.EOF) && n == size:
			return gap, nil
		case err != nil:
			return gap, fmt.Errorf("after %d of %d bytes, the longest gap %s: %w", n, size, gap, err)
		case n > size/3 && last.IsZero():
			if err := fault(); err != nil {
				return gap, err
			}
			last = time.Now()
		}
	}
}

func send(conn net.Conn, size int) error {
	from := stream()
	b := make([]byte, 64<<10)
	for n := 0; n < size; n += len(b) {
		_, _ = from.Read(b)
		if _, err := conn.Write(b); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return conn.(halfCloser).CloseWrite()
}
