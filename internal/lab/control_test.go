// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
)

// TestL21_ControllerRestarts kills the only controller under a running circuit
// and starts it again: data flows all the time, and every router is back without
// being touched.
func TestL21_ControllerRestarts(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	conn := w.connect(client, "hosted")
	boots := w.addresses()
	w.must(w.Kill("c1"))
	w.must(echo(conn, "nobody in control"))
	w.must(w.Start("c1"))
	w.must(echo(conn, "somebody again"))
	w.dialable(client, "hosted") // dialDelay is 0
	w.ready()
	w.must(echo(conn, "the same circuit"))
	for _, r := range []string{"r1", "r2", "r3", "r4"} {
		if got := w.addresses()[r]; got != boots[r] {
			t.Errorf("router %s is at %s now, was at %s", r, got, boots[r])
		}
	}
	w.must(echo(w.connectOver(w.clientAt("alice", "r1"), "echo", "r1", "r2", "r4"), "over r1 and r2"))
	w.must(echo(w.connectOver(w.clientAt("alice", "r3"), "echo", "r3", "r4"), "over r3"))
}

// addresses gives where each router listens.
func (w *world) addresses() map[string]string {
	all := map[string]string{}
	for _, r := range w.Status().Routers {
		all[r.Name] = r.Address
	}
	return all
}

// TestL69_ControlPlaneGone wants new dials to fail at once while data flows.
func TestL69_ControlPlaneGone(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	conn := w.connect(client, "hosted")
	w.must(w.Kill("c1"))
	w.eventually(func() error {
		for _, r := range w.Status().Routers {
			if len(r.Controllers) > 0 {
				return fmt.Errorf("router %s has not noticed", r.Name)
			}
		}
		return nil
	})
	for range 3 {
		w.took(500*time.Millisecond, "the refusal", func() {
			_, err := w.dial(client, "echo")
			w.wantCode(err, ginnel.ControllerUnavailable)
		})
		w.must(echo(conn, "data flows"))
	}
	if _, err := transfer(conn, 4<<20, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// TestThreeControllers_OneKilled wants dials, running circuits and writes to go
// on over the two that are left, whichever one goes.
func TestThreeControllers_OneKilled(t *testing.T) {
	t.Parallel()
	w := open(t, `
controllers: [{name: c1}, {name: c2}, {name: c3}]
routers: [{name: r1, dial: controller}, {name: r2, dial: router}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff]}]
services: [{name: echo}]
hosts: [{identity: bob, service: echo, address: "tcp:ECHO"}]
policies: [{kind: dial, identities: ["#staff"], services: ["@echo"]}]
`, lab.Options{})
	client := w.client("alice")
	conn := w.connect(client, "echo")
	for i, name := range []string{"c1", "c2", "c3"} {
		w.must(w.Kill(name))
		for n := range 10 {
			again, err := w.dial(client, "echo")
			if err != nil {
				t.Fatalf("dial %d without %s: %v", n, name, err)
			}
			w.must(echo(again, "still here"))
			w.must(again.Close())
		}
		left := w.Controller([]string{"c2", "c3", "c1"}[i]).Backend()
		if _, err := left.Services.Create(t.Context(), ginnel.Service{ID: ginnel.ServiceID(fmt.Sprintf("made-%d", i))}); err != nil {
			t.Fatalf("write without %s: %v", name, err)
		}
		w.must(echo(conn, "the old one, too"))
		w.must(w.Start(name))
		w.ready()
	}
	if _, err := w.Controller("c1").Backend().Services.Get(t.Context(), "made-0"); err != nil {
		t.Errorf("the controller that was away does not know what was written: %v", err)
	}
}

// TestL36_LateSuccess lets the first attempt succeed long after a second one has:
// no row of it is left, and the client talks to the second.
func TestL36_LateSuccess(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	release := make(chan struct{})
	slow := w.host("bob", 0, func(ctx context.Context) error {
		select {
		case <-release:
		case <-t.Context().Done():
		}
		return nil // too late, whatever ctx says
	})
	w.host("carol", 1000, nil)
	w.bound("late", 3)
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	conn, err := w.client("alice").Dial(ctx, "late")
	w.must(err)
	close(release)
	w.must(echo(conn, "second attempt"))
	w.must(conn.Close())
	w.eventually(w.noRows)
	w.must(slow.Close())
}
