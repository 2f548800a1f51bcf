// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
)

func TestHold(t *testing.T) {
	var open atomic.Int64
	end, err := Hold(t.Context(), counted(to(run(t, Server{}.Serve)), &open), 20, 3)
	if err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 20 {
		t.Errorf("%d connections are held, want 20", n)
	}
	end()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

func TestHoldFails(t *testing.T) {
	var n, open atomic.Int64
	dial := counted(to(run(t, Server{}.Serve)), &open)
	end, err := Hold(t.Context(), func(ctx context.Context) (net.Conn, error) {
		if n.Add(1) > 4 {
			return nil, errFragile
		}
		return dial(ctx)
	}, 1000, 2)
	if !errors.Is(err, errFragile) {
		t.Errorf("got %v", err)
	}
	if n := n.Load(); n > 10 {
		t.Errorf("it went on: %d dials", n)
	}
	end()
	if n := open.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for _, c := range [][2]int{{0, 1}, {1, 0}, {1, MaxInFlight + 1}} {
		end, err := Hold(t.Context(), dial, c[0], c[1])
		end()
		if err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}

// counted counts the connections of dial that are open.
func counted(dial Dial, open *atomic.Int64) Dial {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &closing{Conn: conn, open: open}, nil
	}
}

// closing is open until it is closed the first time.
type closing struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *closing) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}
