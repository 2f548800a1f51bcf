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
	"github.com/ginnel/ginnel/internal/wire"
)

// TestMaliciousEdge lets the edge router of a client do to the frames of a circuit
// what any router on its path can: read, flip, replay, drop, reorder, cut, in both
// directions. It can read nothing, and what arrives is a beginning of what was sent.
func TestMaliciousEdge(t *testing.T) {
	t.Parallel()
	inCompromised(t, func(w *world, _ *lines) {
		in := w.compromise("r1", "alice")
		alice := in.client("alice")
		w.dialable(10*time.Second, alice, "echo")
		secret := []byte("a line that nobody on the way may read")
		sent := bytes.Repeat(secret, 120_000/len(secret))
		var held []byte
		for _, tc := range []struct {
			name string
			does func(n int, f []byte) [][]byte // with the DATA frames, from 1 on
			want error                          // of the client: at once when it reads, else by the router's reset
		}{
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
		} {
			for _, toVictim := range []bool{true, false} {
				conn := w.connect(alice, "echo")
				w.must(echo(conn, "hello"))
				var mu sync.Mutex
				n, leaked := 0, false
				undo := in.does(mischief{frame: func(to bool, h wire.Header, f []byte) [][]byte {
					mu.Lock()
					defer mu.Unlock()
					leaked = leaked || bytes.Contains(f, secret[:12])
					switch {
					case to == toVictim && h.Type == wire.EOF && errors.Is(tc.want, io.ErrUnexpectedEOF): // one was made up
						return nil
					case to != toVictim, h.Type != wire.Data:
						return [][]byte{f}
					}
					n++
					return tc.does(n, f)
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
				if leaked || n == 0 {
					t.Errorf("%s: can be read: %v, in %d frames", tc.name, leaked, n)
				}
				mu.Unlock()
				switch {
				case tc.want == nil:
					if err != nil || !bytes.Equal(got, sent) {
						t.Errorf("%s: %d bytes of %d, %v", tc.name, len(got), len(sent), err)
					}
				case !bytes.HasPrefix(sent, got), len(got) == len(sent):
					t.Errorf("%s, to the client %v: %d bytes of %d, or others", tc.name, toVictim, len(got), len(sent))
				case withholds(tc.name) && errors.Is(err, os.ErrDeadlineExceeded):
					// What was withheld filled the window: nothing comes behind it that could tell.
				case err == nil, toVictim && !errors.Is(err, tc.want), errors.Is(tc.want, ginnel.NotAuthenticated) && !errors.Is(err, tc.want):
					t.Errorf("%s, to the client %v: %v, want %v", tc.name, toVictim, err, tc.want)
				}
			}
		}
		w.must(w.attempt(alice, "echo"))
	})
}

// withholds reports whether a behaviour can be a silence: a router may stop a
// circuit, as it may pull a cable, but not change what is read.
func withholds(name string) bool { return name == "drops" || name == "reorders" }
