// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/sdk"
)

// TestMaliciousEdge lets the edge router of a client do to the frames of a circuit
// what any router on its path can: read, flip, replay, drop, reorder, cut, in both
// directions. It can read nothing, and what arrives is a beginning of what was sent.
func TestMaliciousEdge(t *testing.T) {
	t.Parallel()
	inCompromised(t, func(w *world, _ *lines) {
		in := w.compromise("r1", "alice")
		alice := in.client("alice")
		w.dialable(alice, "echo")
		w.attacks(in, true, func() *sdk.Conn { return w.connect(alice, "echo") })
		w.must(w.attempt(alice, "echo"))
	})
}

// TestMaliciousTransit is the same by a router in the middle of a path, for circuits
// to a router and to an SDK, with real routers on both sides of it. A path that it
// says is broken, to whomever, is replaced by one around it.
func TestMaliciousTransit(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	real, instead := "", ""
	w := open(t, diamond, lab.Options{Plain: true, Via: func(router, hostport string) string {
		mu.Lock()
		defer mu.Unlock()
		if router == "r4" && hostport == real {
			return instead
		}
		return hostport
	}})
	in := w.compromiseLink("r2", "r4")
	mu.Lock()
	real, instead = in.real, in.address
	mu.Unlock()
	w.must(w.LinkDown("r2", "r4"))
	w.must(w.LinkUp("r2", "r4"))
	w.ready()
	alice := w.clientOnly("alice", "r1")
	for _, service := range []string{"echo", "hosted"} {
		w.dialable(alice, service)
		w.attacks(in, false, func() *sdk.Conn { return w.connectOver(alice, service, "r1", "r2", "r4") })
		for _, told := range [][2]bool{{true, true}, {true, false}, {false, true}} {
			w.breaks(in, w.connectOver(alice, service, "r1", "r2", "r4"), told[0], told[1])
		}
	}
}

// attack is what a router does to the frames of a circuit.
type attack struct {
	name string
	does func(n int, f []byte) [][]byte // with the DATA frames, from 1 on
	want error                          // of the client: at once when it reads, else by the router's reset
}

func attacks() []attack {
	var held []byte
	return []attack{
		{"only reads", func(_ int, f []byte) [][]byte { return [][]byte{f} }, nil},
		{"flips", func(n int, f []byte) [][]byte {
			if n == 1 {
				f[len(f)/2] ^= 1
			}
			return [][]byte{f}
		}, ginnel.NotAuthenticated},
		{"replays", func(n int, f []byte) [][]byte {
			if n == 1 {
				return [][]byte{f, f}
			}
			return [][]byte{f}
		}, ginnel.NotAuthenticated},
		{"drops", func(n int, f []byte) [][]byte {
			if n == 1 {
				return nil
			}
			return [][]byte{f}
		}, ginnel.NotAuthenticated},
		{"reorders", func(n int, f []byte) [][]byte {
			switch n {
			case 1:
				held = bytes.Clone(f)
				return nil
			case 2:
				return [][]byte{f, held}
			}
			return [][]byte{f}
		}, ginnel.NotAuthenticated},
		{"cuts", func(n int, f []byte) [][]byte {
			if n > 1 {
				return nil
			}
			h, _ := wire.ParseHeader(f)
			return [][]byte{wire.AppendFrame(nil, h.Label, wire.EOF, 0, nil)}
		}, io.ErrUnexpectedEOF},
	}
}

// secret is what the programs say to each other, again and again.
func secret() []byte { return []byte("a line that nobody on the way may read") }

// attacks lets a router attack one circuit after the other, in both directions. The
// victim, whom the router plays to, is the client of the circuit, or beside its host.
func (w *world) attacks(in *compromised, victimIsClient bool, connect func() *sdk.Conn) {
	w.t.Helper()
	for _, toClient := range []bool{true, false} {
		for _, a := range attacks() {
			w.attack(in, a, toClient, toClient == victimIsClient, connect())
		}
	}
}

func (w *world) attack(in *compromised, a attack, toClient, toVictim bool, conn *sdk.Conn) {
	w.t.Helper()
	w.must(echo(conn, "hello"))
	sent := bytes.Repeat(secret(), 120_000/len(secret()))
	var mu sync.Mutex
	n, leaked := 0, false
	undo := in.does(mischief{frame: func(to bool, h wire.Header, f []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		leaked = leaked || bytes.Contains(f, secret()[:12])
		switch {
		case to == toVictim && h.Type == wire.EOF && errors.Is(a.want, io.ErrUnexpectedEOF): // one was made up
			return nil
		case to != toVictim, h.Type != wire.Data:
			return [][]byte{f}
		}
		n++
		return a.does(n, f)
	}})
	w.must(conn.SetDeadline(time.Now().Add(20 * time.Second)))
	go func() {
		for b := range slices.Chunk(sent, 3000) { // a frame each, several within the first window
			_, _ = conn.Write(b)
		}
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	undo()
	_ = conn.Close()
	mu.Lock()
	defer mu.Unlock()
	if leaked || n == 0 {
		w.t.Errorf("%s: can be read: %v, in %d frames", a.name, leaked, n)
	}
	switch {
	case a.want == nil:
		if err != nil || !bytes.Equal(got, sent) {
			w.t.Errorf("%s: %d bytes of %d, %v", a.name, len(got), len(sent), err)
		}
	case !bytes.HasPrefix(sent, got), len(got) == len(sent):
		w.t.Errorf("%s, to the client %v: %d bytes of %d, or others", a.name, toClient, len(got), len(sent))
	case withholds(a.name) && errors.Is(err, os.ErrDeadlineExceeded):
		// What was withheld filled the window: nothing comes behind it that could tell.
	case a.name == "replays" && errors.Is(err, ginnel.PeerReset): // it was more than there was credit for
	case err == nil, toClient && !errors.Is(err, a.want), errors.Is(a.want, ginnel.NotAuthenticated) && !errors.Is(err, a.want):
		w.t.Errorf("%s, to the client %v: %v, want %v", a.name, toClient, err, a.want)
	}
}

// breaks lets the router say to both sides of a whole path, or to one of them, that it is
// broken, in the middle of a transfer: every byte arrives all the same, over another path.
func (w *world) breaks(in *compromised, conn *sdk.Conn, toHost, toClient bool) {
	w.t.Helper()
	var mu sync.Mutex
	told := map[bool]bool{true: toHost, false: toClient} // by whether the victim is meant
	labels, said := map[bool]uint32{}, 0
	undo := in.does(mischief{frame: func(to bool, h wire.Header, f []byte) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		labels[to] = h.Label // of the circuit that spoke last
		if said++; said != 20 || len(labels) != 2 {
			return [][]byte{f}
		}
		in.mu.Lock()
		other := in.down
		if to {
			other = in.up
		}
		in.mu.Unlock()
		if told[!to] {
			_ = other.SendFrame(nil, wire.AppendFrame(nil, labels[!to], wire.PathBroken, 0, nil))
		}
		if told[to] {
			return [][]byte{wire.AppendFrame(nil, h.Label, wire.PathBroken, 0, nil)}
		}
		return [][]byte{f}
	}})
	defer undo()
	w.took(5*time.Second, "a transfer over a path that is said to be broken", func() {
		if _, err := transfer(conn, 1<<20, func() error { return nil }); err != nil {
			w.t.Errorf("a path that is said to be broken, to the host %v, to the client %v: %v", toHost, toClient, err)
		}
	})
	if mu.Lock(); said < 20 {
		w.t.Errorf("only %d frames came", said)
	}
	mu.Unlock()
}

// withholds reports whether a behaviour can be a silence: a router may stop a
// circuit, as it may pull a cable, but not change what is read.
func withholds(name string) bool { return name == "drops" || name == "reorders" }
