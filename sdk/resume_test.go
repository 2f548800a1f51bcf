// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// talk writes to an echo in pieces, calls between in the middle, and checks that
// all comes back; it gives the longest time that a piece took.
func talk(t *testing.T, conn *Conn, between func()) time.Duration {
	t.Helper()
	const pieces = 20
	longest := time.Duration(0)
	for i := range pieces {
		if i == pieces/2 {
			between()
		}
		piece := make([]byte, 50_000)
		_, _ = rand.Read(piece)
		start := time.Now()
		go func() { _, _ = conn.Write(piece) }()
		got := make([]byte, len(piece))
		if _, err := io.ReadFull(conn, got); err != nil {
			t.Fatalf("piece %d: %v", i, err)
		}
		if !bytes.Equal(got, piece) {
			t.Fatalf("piece %d is another one", i)
		}
		longest = max(longest, time.Since(start))
	}
	return longest
}

func TestL64_EdgeRoutersDieUnderACircuit(t *testing.T) {
	for _, tt := range []struct {
		name string
		die  func(w *world, client, host ginnel.RouterID)
		most time.Duration
	}{
		{"client's is killed", func(w *world, client, _ ginnel.RouterID) { w.kill(string(client)) }, 2 * time.Second},
		{"host's is killed", func(w *world, _, host ginnel.RouterID) { w.kill(string(host)) }, 2 * time.Second},
		{"client's is silent", func(w *world, client, _ ginnel.RouterID) {
			w.net.Silence(string(client), "alice")
			w.net.Silence("alice", string(client))
		}, 5 * time.Second},
		{"host's is silent", func(w *world, _, host ginnel.RouterID) {
			w.net.Silence(string(host), "bob")
			w.net.Silence("bob", string(host))
		}, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, "r1", "r2", "r3", "r4")
				w.net.SetLatency("alice", "r1", 10*time.Millisecond)
				for _, r := range []string{"r2", "r3", "r4"} {
					w.net.SetLatency("alice", r, 30*time.Millisecond)
				}
				bob := w.client("bob")
				pass(5 * time.Second)
				echo(t, bob, "echo", ListenOptions{})
				alice := w.client("alice")
				pass(5 * time.Second)
				conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
				if err != nil {
					t.Fatal(err)
				}
				host := ginnel.RouterID(conn.circuit.decided.GetRouter())
				gap := talk(t, conn, func() { tt.die(w, "r1", host) })
				if gap > tt.most {
					t.Errorf("got a gap of %v, want %v at most", gap, tt.most)
				}
			})
		})
	}
}

// overOneRouter gives a circuit from alice to bob over r1.
func overOneRouter(t *testing.T) (w *world, alice *Client, conn *Conn) {
	t.Helper()
	w = newWorld(t, "r1")
	echo(t, w.client("bob"), "echo", ListenOptions{})
	alice = w.client("alice")
	pass(6 * time.Second) // so that a loss is no fast failure
	conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return w, alice, conn
}

// The edge connection comes back to the same life of the router: no controller
// is needed.
func TestPathComesBackWithItsConnection(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, alice, conn := overOneRouter(t)
		x := conn.circuit
		before := x.rows[0].at()
		w.net.Cut("alice", "r1")
		pass(2 * time.Second)
		after := alice.edges.ranked(wish{})[0]
		if after == before {
			t.Fatal("the connection was not lost")
		}
		if len(x.rows) != 1 || x.rows[0].at() != after || after.rows[x.rows[0].arrive] != x.rows[0] {
			t.Errorf("the path did not move to the new connection")
		}
		if before.boot != after.boot {
			t.Error("another life")
		}
	})
}

func TestResumeGivesUpWhereItIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		w.net.SetLatency("alice", "r2", 20*time.Millisecond)
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		pass(5 * time.Second)
		conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.boot = ""
		w.mu.Unlock()
		w.kill("r1")
		w.kill("r2")
		start := time.Now()
		_, err = conn.Read(make([]byte, 1))
		d, ok := errors.AsType[*ginnel.DialError](err)
		if !ok || d.Code != ginnel.ResumeTimeout || d.Circuit != conn.Circuit() || time.Since(start) > 61*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestHintMovesTheCircuitOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		generation := conn.circuit.stream.Generation()
		talk(t, conn, func() {
			for range 3 { // two of them are late
				alice.circuits.hinted(conn.Circuit(), generation)
			}
			pass(100 * time.Millisecond)
			alice.circuits.hinted(conn.Circuit(), generation)
			pass(100 * time.Millisecond)
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.resumes) != 1 || conn.circuit.stream.Generation() <= generation {
			t.Errorf("got %d resumes, generation %d", len(w.resumes), conn.circuit.stream.Generation())
		}
		if n := len(conn.circuit.rows); n != 1 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// A hint is about the edge router that the circuit enters at: its path is asked for
// from there, though another edge router is nearer by now.
func TestHintKeepsTheEdgeRouter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		w.net.SetLatency("alice", "r2", 40*time.Millisecond)
		alice := w.client("alice")
		pass(10 * time.Second)
		conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.net.SetLatency("alice", "r1", 400*time.Millisecond)
		w.net.SetLatency("alice", "r2", 0)
		pass(time.Minute)
		if best := alice.edges.ranked(wish{})[0].id; best != "r2" {
			t.Fatalf("%s is the nearest", best)
		}
		alice.circuits.hinted(conn.Circuit(), conn.circuit.stream.Generation())
		pass(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.resumes) != 1 || w.resumes[0].GetRouter() != "r1" {
			t.Errorf("resumes: %v", w.resumes)
		}
	})
}

// A circuit that is given up while its edge connection is lost has nobody to tell: the
// router, which keeps it, hears of it when the connection is back.
func TestEndedWhileItsConnectionWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, conn := overOneRouter(t)
		label := conn.circuit.rows[0].send
		w.net.Cut("alice", "r1")
		w.net.Silence("alice", "r1") // the next connection takes a moment
		pass(time.Second)
		if !conn.circuit.rows[0].at().isGone() {
			t.Fatal("the connection is not lost")
		}
		_ = conn.Abort()
		pass(time.Second)
		w.net.Resume("alice", "r1")
		pass(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.strays[label] != wire.Reset {
			t.Errorf("the router heard %v, want a RESET on label %d", w.strays, label)
		}
	})
}

func TestNothingIsLeftOfEndedCircuits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		echo(t, bob, "echo", ListenOptions{})
		alice := w.client("alice")
		for range 20 {
			conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte("x"))
			_ = conn.CloseWrite()
			if _, err := io.ReadAll(conn); err != nil {
				t.Error(err)
			}
			_ = conn.Close()
		}
		pass(30 * time.Second)
		for _, c := range []*Client{alice, bob} {
			if len(c.circuits.all) != 0 || len(c.edges.ranked(wish{})[0].rows) != 0 {
				t.Errorf("%s: %d circuits, %d rows", c.self, len(c.circuits.all), len(c.edges.ranked(wish{})[0].rows))
			}
			if used := int64(256<<20) - c.budget.Left(); used != 0 {
				t.Errorf("%s: %d bytes of the budget are taken", c.self, used)
			}
		}
	})
}

// A connection that goes while a path over it is being taken up takes the path with it,
// and the stream knows at once.
func TestL65_PathLostWhileItIsTakenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := conn.circuit
		talk(t, conn, func() {
			taken := x.stream.Generation() + 256
			e := x.edgeOf(x.stream.Generation())
			r, h := x.take(e, taken, 1<<30, 1<<30)
			e.conn.Close(nil)
			<-e.finished
			synctest.Wait()
			if err := x.stream.NewPath(taken, h); err != nil {
				t.Fatal(err)
			}
			x.settle(r, h)
			pass(time.Second)
			if x.stream.Generation() <= taken {
				t.Error("the circuit waits for a path that is gone")
			}
		})
	})
}

// Of two paths that come at once the newer one stays, whichever is settled last.
func TestL65_NewerPathStaysWhenAnOlderOneIsSettled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		echo(t, bob, "echo", ListenOptions{})
		conn, err := w.client("alice").DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := bob.circuits.get(conn.Circuit(), flow.Host)
		current := x.stream.Generation()
		e := x.edgeOf(current)
		older, h1 := x.take(e, current+256, 1<<30, 1<<30)
		newer, h2 := x.take(e, current+512, 1<<30+1, 1<<30+1)
		for generation, h := range map[uint32]*hop{older.generation: h1, newer.generation: h2} {
			_ = x.stream.NewPath(generation, h) // the older one may be stale
		}
		x.settle(newer, h2)
		x.settle(older, h1)
		var left []uint32
		for _, r := range x.rows {
			left = append(left, r.generation)
		}
		if !slices.Equal(left, []uint32{current, newer.generation}) {
			t.Errorf("paths %d are left", left)
		}
	})
}

// What breaks a path before its circuit knows the label is not missed.
func TestFramesBeforeTheirRow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		alice := w.client("alice")
		e, err := alice.edges.pick(within10s(t), wish{})
		if err != nil {
			t.Fatal(err)
		}
		frame := wire.AppendReset(nil, 77, ginnel.Revoked, "")
		for range 2 * maxUnclaimed {
			head, _ := wire.ParseHeader(frame)
			_ = e.Frame(nil, head, frame)
		}
		if len(e.unclaimed) != maxUnclaimed {
			t.Errorf("%d frames are kept", len(e.unclaimed))
		}
	})
}
