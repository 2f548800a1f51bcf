// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// A Listener that checks what it serves tells every edge router at which it is
// bound when that fails and when it is well again, and one it binds at later; its
// terminators stay the same.
func TestHealthCheckOfAListener(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		var down atomic.Bool
		var asked atomic.Value
		check := &HealthCheck{
			Check: ginnel.Check{Kind: ginnel.TCPCheck}, Address: "tcp:app:80",
			Dial: func(_ context.Context, network, address string) (net.Conn, error) {
				asked.Store(network + " " + address)
				if down.Load() {
					return nil, errors.New("down")
				}
				near, far := net.Pipe()
				_ = far.Close()
				return near, nil
			},
		}
		l := echo(t, w.client("bob"), "echo", ListenOptions{Check: check})
		pass(time.Second)
		want := func(what string, binds int, unhealthy bool) {
			t.Helper()
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.binds) != binds {
				t.Errorf("%s: %d terminators, want %d", what, len(w.binds), binds)
			}
			for id, b := range w.binds {
				if !b.request.GetChecked() || b.request.GetUnhealthy() != unhealthy {
					t.Errorf("%s: %s is bound with %v", what, id, b.request)
				}
			}
		}
		want("at first", 2, false)
		down.Store(true)
		pass(17 * time.Second)
		want("after at most two failures", 2, false)
		pass(20 * time.Second)
		want("after three", 2, true)
		if got := asked.Load(); got != "tcp app:80" {
			t.Errorf("checked %v", got)
		}
		w.kill("r1")
		pass(10 * time.Second)
		w.start("r1")
		pass(20 * time.Second)
		want("bound while unhealthy", 2, true)
		if _, err := w.client("alice").Dial(t.Context(), "echo"); err != nil {
			t.Errorf("the only host, which is unhealthy: %v", err)
		}
		down.Store(false)
		pass(30 * time.Second)
		want("after two successes", 2, false)
		_ = l.Close()
		pass(time.Minute)
		want("closed", 0, false)
	})
}

func TestHealthCheckThatCannotBe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		bob := newWorld(t, "r1").client("bob")
		for _, check := range []HealthCheck{
			{Check: ginnel.Check{Kind: "ping"}, Address: "tcp:app:80"},
			{Check: ginnel.Check{Kind: ginnel.TCPCheck}},
			{Check: ginnel.Check{Kind: ginnel.TCPCheck}, Address: "udp:app:80"},
			{Check: ginnel.Check{Kind: ginnel.HTTPCheck, Path: "ready"}, Address: "tcp:app:80"},
		} {
			if l, err := bob.Listen("echo", ListenOptions{Check: &check}); err == nil {
				_ = l.Close()
				t.Errorf("took %+v", check)
			}
		}
	})
}
