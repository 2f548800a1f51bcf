// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// host hosts the service late in an identity's name: an echo. connect, if it is
// not nil, runs before a dial is answered.
func (w *world) host(identity string, cost int64, connect func(ctx context.Context) error) *sdk.Listener {
	w.t.Helper()
	opts := sdk.ListenOptions{Cost: ginnel.Units(cost)}
	if connect != nil {
		opts.Connect = func(ctx context.Context, _ sdk.Incoming) (io.Closer, error) { return nil, connect(ctx) }
	}
	l, err := w.client(identity).Listen("late", opts)
	w.must(err)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l
}

// bound waits until a service has that many terminators, bound or stored.
func (w *world) bound(service string, want int) {
	w.t.Helper()
	w.eventually(func() error {
		if got := len(w.terminators("c1", service)); got != want {
			return fmt.Errorf("service %s has %d terminators, want %d", service, got, want)
		}
		return nil
	})
}

// TestL34_HostClosedItsListener dials at the moment at which the better of two
// hosts is closed: the other one answers within a second.
func TestL34_HostClosedItsListener(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	w.host("carol", 1000, nil)
	for range 5 {
		better := w.host("bob", 0, nil)
		w.bound("late", 3)
		w.must(better.Close())
		w.took(time.Second, "the dial", func() {
			conn := w.connect(client, "late")
			w.must(echo(conn, "the other one"))
			if got := conn.Peer().ID; got != "carol" {
				t.Errorf("%s answers after its listener was closed", got)
			}
		})
		w.bound("late", 1)
	}
}

// TestL46_RouterRestarts wants hosts to bind again at a router that was away,
// and nothing left of before.
func TestL46_RouterRestarts(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	w.bound("hosted", 2) // at r3 and r4
	old := w.terminators("c1", "hosted")
	w.must(w.Kill("r4"))
	w.bound("hosted", 1)
	w.must(w.Start("r4"))
	w.bound("hosted", 2)
	w.ready()
	for i, now := range w.terminators("c1", "hosted") {
		if now.ID != old[i].ID || now.Router != old[i].Router {
			t.Errorf("terminator %s at %s, was %s at %s", now.ID, now.Router, old[i].ID, old[i].Router)
		}
	}
	w.must(echo(w.connectOver(w.clientAt("alice", "r1"), "hosted", "r1", "r2", "r4"), "again"))
}

// TestL47_QuickBinds binds and unbinds a hundred times: nothing is left.
func TestL47_QuickBinds(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	bob := w.client("bob")
	stored := func() int64 {
		status, err := w.admin().Status(t.Context())
		w.must(err)
		return status.Revision
	}
	before := stored()
	for i := range 100 {
		l, err := bob.Listen("late", sdk.ListenOptions{})
		w.must(err)
		if i%3 == 0 { // some are bound, some are on their way, some never left
			<-l.Bound()
		}
		w.must(l.Close())
	}
	last := w.host("carol", 0, nil)
	w.bound("late", 1)
	w.must(last.Close())
	w.bound("late", 0)
	if now := stored(); now != before {
		t.Errorf("binds have written to the store: revision %d, it was %d", now, before)
	}
	_, err := w.dial(w.client("alice"), "late")
	w.wantCode(err, ginnel.NoTerminators)
}
