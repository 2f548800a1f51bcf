// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/wire"
)

// bulk is what the transfers under faults carry each way.
const bulk = 12 << 20

// TestL64_KilledUnderATransfer breaks a path in four ways under bulk data in both
// directions: every byte arrives, and the gap is under two seconds.
func TestL64_KilledUnderATransfer(t *testing.T) {
	for _, test := range []struct {
		name, service string
		fault         func(w *world) error
	}{
		{"transit router killed", "hosted", func(w *world) error { return w.Kill("r2") }},
		{"transit router killed, hosted by the router", "echo", func(w *world) error { return w.Kill("r2") }},
		{"link down", "hosted", func(w *world) error { return w.LinkDown("r2", "r4") }},
		{"client's edge router killed", "echo", func(w *world) error { return w.Kill("r1") }},
		{"host's edge router killed", "hosted", func(w *world) error { return w.Kill("r4") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := open(t, diamond, lab.Options{Plain: true})
			conn := w.connectOver(w.clientAt("alice", "r1"), test.service, "r1", "r2", "r4")
			gap, err := transfer(conn, bulk, func() error { return test.fault(w) })
			if err != nil {
				t.Fatal(err)
			}
			if most := slack * 2 * time.Second; gap > most {
				t.Errorf("no byte for %s, want at most %s", gap, most)
			}
			t.Logf("longest gap %s", gap)
		})
	}
}

// TestL64_SilentUnderATransfer swallows a router's packets: what nobody closes is
// found out, and after another way is found the silent one may come back.
func TestL64_SilentUnderATransfer(t *testing.T) {
	for _, test := range []struct{ name, service, router string }{
		{"transit router", "hosted", "r2"},
		{"client's edge router", "echo", "r1"},
		{"host's edge router", "hosted", "r4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := open(t, diamond, lab.Options{})
			conn := w.connectOver(w.clientAt("alice", "r1"), test.service, "r1", "r2", "r4")
			gap, err := transfer(conn, bulk, func() error { return w.Silence(test.router) })
			if err != nil {
				t.Fatal(err)
			}
			if most := slack * 5 * time.Second; gap > most {
				t.Errorf("no byte for %s, want at most %s", gap, most)
			}
			t.Logf("longest gap %s", gap)
			w.must(w.Resume(test.router))
			w.ready()
		})
	}
}

// TestFirstPathBreaksBeforeItIsUsed breaks a path between the answer to the dial and the
// client's first frame: the host, which has heard nothing, is found by another path.
func TestFirstPathBreaksBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"hosted", "echo"} {
		inCompromised(t, func(w *world, _ *lines) {
			in := w.compromise("r1", "alice")
			alice := in.client("alice")
			w.dialable(alice, service)
			undo := in.does(mischief{frame: func(toVictim bool, _ wire.Header, f []byte) [][]byte {
				if !toVictim {
					return nil // is still on its way when the path breaks
				}
				return [][]byte{f}
			}})
			conn := w.connectOver(alice, service, "r1", "r2", "r4")
			w.must(w.LinkDown("r2", "r4"))
			undo()
			if _, err := transfer(conn, 1<<20, func() error { return nil }); err != nil {
				t.Errorf("%s: %v", service, err)
			}
		})
	}
}

// TestPathBreaksBehindBothEnds breaks a path when both streams have ended as far as the
// host's edge router can see, and the client has read nothing: what stood on the way is
// lost, and comes by another path.
func TestPathBreaksBehindBothEnds(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{Plain: true})
	alice := w.clientAt("alice", "r1")
	for _, service := range []string{"hosted", "echo"} {
		conn := w.connectOver(alice, service, "r1", "r2", "r4")
		other := w.connectOver(alice, service, "r1", "r2", "r4")
		w.must(conn.SetDeadline(time.Now().Add(30 * time.Second)))
		sent := make([]byte, 60_000) // stands in the first windows of four hops
		_, _ = stream().Read(sent)
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		w.must(conn.CloseWrite())
		for range 50 { // the answer goes as far as it may meanwhile
			w.must(echo(other, "tick"))
		}
		w.must(w.LinkDown("r2", "r4"))
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: %d bytes of %d, %v", service, len(got), len(sent), err)
		}
		w.must(w.LinkUp("r2", "r4"))
		w.ready()
	}
}

// TestLatencyDecides moves the cheapest way by delaying links.
func TestLatencyDecides(t *testing.T) {
	t.Parallel()
	w := open(t, `
routers: [{name: r1}, {name: r2}, {name: r3}, {name: r4}]
links:
  - {a: r1, b: r2, latency: 10ms}
  - {a: r2, b: r4}
  - {a: r1, b: r3, latency: 150ms}
  - {a: r3, b: r4}
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services: [{name: echo, terminators: [{router: r4, address: "tcp:ECHO"}]}]
policies: [{kind: dial, identities: ["#staff"], services: ["@echo"]}]
`, lab.Options{})
	client := w.client("alice")
	if path := w.dialable(client, "echo"); len(path) != 3 || path[1] != "r2" {
		t.Fatalf("path %v, want r1 r2 r4", path)
	}
	w.must(w.LinkLatency("r1", "r2", 400*time.Millisecond))
	w.must(w.LinkLatency("r1", "r3", 0))
	w.eventually(func() error {
		if path := w.dialable(client, "echo"); len(path) != 3 || path[1] != "r3" {
			return errPath(path)
		}
		return nil
	})
}
