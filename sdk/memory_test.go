// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// Options.Memory bounds the connections of a program, at both ends: one more is BUSY,
// which says why, at once, and without asking anybody for anything.
func TestMemoryBoundsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.clientWith("bob", Options{Memory: 8 * LeastMemory}), "echo", ListenOptions{})
		alice, carol := w.clientWith("alice", Options{Memory: 2 * LeastMemory}), w.client("carol")
		pass(time.Second)
		dial := func(c *Client) *Conn {
			t.Helper()
			conn, err := c.DialService(t.Context(), "echo", DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		full := func(c *Client, want string) {
			t.Helper()
			_, err := c.DialService(t.Context(), "echo", DialOptions{})
			if !errors.Is(err, ginnel.Busy) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want BUSY with %q", err, want)
			}
		}
		first := dial(alice)
		dial(alice)
		w.mu.Lock()
		dials := len(w.dials)
		w.mu.Unlock()
		start := time.Now()
		full(alice, "this program use up the memory that it gives them: 64 KiB")
		w.mu.Lock()
		if len(w.dials) != dials || time.Since(start) != 0 {
			t.Errorf("told after %v and %d dials", time.Since(start), len(w.dials)-dials)
		}
		w.mu.Unlock()
		// Of carol's some get through: what echoes takes more than the least.
		for range 8 {
			if _, err := carol.DialService(t.Context(), "echo", DialOptions{}); err != nil {
				break
			}
		}
		full(carol, "the host's program use up the memory that it gives them: 256 KiB")
		_ = first.Close()
		pass(20 * time.Second)
		dial(alice)
	})
}
