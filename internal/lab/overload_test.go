// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// TestOverloadIsBusy dials thousands of times at once what takes its time, more
// than routers and controllers set up at once: every dial is answered in its time,
// those that are too many with BUSY and when to come back, and a transfer that
// runs meanwhile loses nothing and never stands still for long.
func TestOverloadIsBusy(t *testing.T) {
	w := open(t, diamond, lab.Options{Plain: true})
	var held atomic.Int32
	w.host("bob", 0, func(ctx context.Context) error {
		held.Add(1)
		<-ctx.Done()
		return ctx.Err()
	})
	w.bound("late", 2)
	conn := w.connectOver(w.clientAt("alice", "r1"), "echo", "r1", "r2", "r4")
	crowd := w.client("alice")
	w.dialable(5*time.Second, crowd, "echo")
	const dials, limit = 3000, 900 * time.Millisecond // no time to come back a second later
	var busy, other, silent atomic.Int32
	var crowded sync.WaitGroup
	for range dials {
		crowded.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			_, err := crowd.DialService(ctx, "late", sdk.DialOptions{})
			if took := time.Since(began); took > slack*(limit+2*time.Second) {
				silent.Add(1)
			}
			dial, ok := errors.AsType[*ginnel.DialError](err)
			switch {
			case !ok:
				t.Errorf("got %v, want an error with a code", err)
			case dial.Code == ginnel.Busy && dial.RetryAfter <= 0:
				t.Errorf("busy, and does not say until when: %v", dial)
			case dial.Code == ginnel.Busy:
				busy.Add(1)
			default:
				other.Add(1)
			}
		})
	}
	over := make(chan struct{})
	go func() {
		crowded.Wait()
		close(over)
	}()
	gap, rounds := converse(t, conn, over)
	t.Logf("%d busy, %d failed otherwise, %d reached the host; %d rounds of the transfer, the longest %s",
		busy.Load(), other.Load(), held.Load(), rounds, gap)
	if busy.Load() < dials/10 {
		t.Errorf("%d of %d dials were told that it is busy", busy.Load(), dials)
	}
	if n := silent.Load(); n > 0 {
		t.Errorf("%d dials were answered late", n)
	}
	if most := slack * 2 * time.Second; gap > most {
		t.Errorf("the transfer stood still for %s", gap)
	}
	w.must(conn.Close())
	w.eventually(40*time.Second, w.noRows)
}

// converse sends pieces to an echo and compares what comes back, until over is
// closed. It gives how long the slowest piece took, and how many there were.
func converse(t *testing.T, conn net.Conn, over <-chan struct{}) (longest time.Duration, rounds int) {
	t.Helper()
	from := stream()
	piece, got := make([]byte, 64<<10), make([]byte, 64<<10)
	for ; ; rounds++ {
		select {
		case <-over:
			return longest, rounds
		default:
		}
		_, _ = from.Read(piece)
		began := time.Now()
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(piece)
			sent <- err
		}()
		_, err := io.ReadFull(conn, got)
		if err = errors.Join(err, <-sent); err != nil {
			t.Fatalf("round %d: %v", rounds, err)
		}
		if !bytes.Equal(got, piece) {
			t.Fatalf("round %d: other bytes came back", rounds)
		}
		longest = max(longest, time.Since(began))
	}
}
