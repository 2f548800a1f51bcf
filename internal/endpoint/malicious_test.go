// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// wickedness is what a router, at an edge or in transit, makes of the third of
// the DATA frames that it is given from the moment on at which it is broken into.
type wickedness struct {
	name string
	does func(frame, before []byte) (instead [][]byte)
	cuts bool  // what comes behind is not passed on
	want error // for who reads; nil: nobody notices, all arrives
}

// changed gives a frame with one bit of its payload the other way, counted from its
// end when at is negative.
func changed(frame []byte, at int) [][]byte {
	frame = bytes.Clone(frame)
	if at < 0 {
		at += len(frame)
	} else {
		at += wire.HeaderSize
	}
	frame[at] ^= 1
	return [][]byte{frame}
}

func made(frame []byte, t wire.Type, payload []byte) []byte {
	h, _ := wire.ParseHeader(frame)
	return wire.AppendFrame(nil, h.Label, t, 0, payload)
}

var wicked = []wickedness{
	{"only reads", func(f, _ []byte) [][]byte { return [][]byte{f} }, false, nil},
	{"cuts frames in two", func(f, _ []byte) [][]byte {
		p := f[wire.HeaderSize:]
		return [][]byte{made(f, wire.Data, p[:3]), made(f, wire.Data, p[3:77]), made(f, wire.Data, p[77:])}
	}, false, nil},
	{"flips a bit of a record's header", func(f, _ []byte) [][]byte { return changed(f, 1) }, false, ginnel.NotAuthenticated},
	{"flips a bit of a record's length", func(f, _ []byte) [][]byte { return changed(f, 4) }, false, ginnel.NotAuthenticated},
	{"flips a bit of what is in a record", func(f, _ []byte) [][]byte { return changed(f, 1000) }, false, ginnel.NotAuthenticated},
	{"flips a bit of a record's tag", func(f, _ []byte) [][]byte { return changed(f, -1) }, false, ginnel.NotAuthenticated},
	{"replays", func(f, _ []byte) [][]byte { return [][]byte{f, bytes.Clone(f)} }, false, ginnel.NotAuthenticated},
	{"replays an older one", func(f, before []byte) [][]byte { return [][]byte{before, f} }, false, ginnel.NotAuthenticated},
	{"drops", func(_, _ []byte) [][]byte { return nil }, false, ginnel.NotAuthenticated},
	{"puts in a record of its own", func(f, _ []byte) [][]byte {
		rec := append([]byte{23, 3, 3, 0, 40}, make([]byte, 40)...)
		return [][]byte{made(f, wire.Data, rec), f}
	}, false, ginnel.NotAuthenticated},
	{"puts in an end in plain text", func(f, _ []byte) [][]byte {
		return [][]byte{made(f, wire.Data, []byte{21, 3, 3, 0, 2, 1, 0}), f}
	}, false, ginnel.NotAuthenticated},
	{"ends the stream early", func(f, _ []byte) [][]byte { return [][]byte{made(f, wire.EOF, nil)} }, true, io.ErrUnexpectedEOF},
	{"ends the stream within a record", func(f, _ []byte) [][]byte {
		return [][]byte{made(f, wire.Data, f[wire.HeaderSize:1000]), made(f, wire.EOF, nil)}
	}, true, io.ErrUnexpectedEOF},
	{"ends the circuit as if all were well", func(f, _ []byte) [][]byte {
		return [][]byte{made(f, wire.Reset, []byte{0, 0})}
	}, false, ginnel.PeerReset},
}

// wickedSwap needs two frames: the third goes behind the fourth.
func wickedSwap(held *[]byte) func(n int, f []byte) [][]byte {
	return func(n int, f []byte) [][]byte {
		switch n {
		case 3:
			*held = f
			return nil
		case 4:
			return [][]byte{f, *held}
		}
		return [][]byte{f}
	}
}

// A router on the path reads, flips, replays, drops, reorders, cuts and makes up
// frames, in either direction, where the end is read by Read and where what comes
// is written to a socket by who brings it. Nothing readable passes it, and what the
// program gets is a beginning of what was sent and then an error that says so.
func TestMaliciousRouter(t *testing.T) {
	tr := newTrust(t)
	for _, toHost := range []bool{true, false} {
		for _, outlet := range []bool{false, true} {
			for _, w := range wicked {
				t.Run(fmt.Sprintf("%s/to the host %v/to a socket %v", w.name, toHost, outlet), func(t *testing.T) {
					var before []byte
					maliciousRouter(t, tr, toHost, outlet, w.want, func(n int, f []byte) [][]byte {
						instead := [][]byte{f}
						switch {
						case n == 3:
							instead = w.does(f, before)
						case n > 3 && w.cuts:
							instead = nil
						}
						before = bytes.Clone(f)
						return instead
					})
				})
			}
			t.Run(fmt.Sprintf("reorders/to the host %v/to a socket %v", toHost, outlet), func(t *testing.T) {
				maliciousRouter(t, tr, toHost, outlet, ginnel.NotAuthenticated, wickedSwap(new([]byte)))
			})
		}
	}
}

func maliciousRouter(t *testing.T, tr *trust, toHost, outlet bool, want error, evil func(n int, f []byte) [][]byte) {
	e := dial(t, tr, config(), config())
	from, to, way := e.client, e.host, e.path.toHost
	if !toHost {
		from, to, way = e.host, e.client, e.path.toClient
	}
	secret := []byte("a line that nobody on the way may read; ")
	one := make([]byte, 1)
	for _, c := range [][2]*Conn{{e.client, e.host}, {e.host, e.client}} { // behind handshake and tickets
		if _, err := c[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c[1], one); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	way.setEvil(func(h wire.Header, f []byte) [][]byte {
		if bytes.Contains(f, secret[:12]) {
			t.Error("a router can read what passes")
		}
		switch {
		case h.Type == wire.EOF && errors.Is(want, io.ErrUnexpectedEOF): // one was made up
			return nil
		case h.Type != wire.Data:
			return [][]byte{f}
		}
		n++
		return evil(n, f)
	})
	var sent []byte
	for i := range 6 {
		b := bytes.Repeat(append([]byte{byte('0' + i)}, secret...), 5000/len(secret))
		sent = append(sent, b...)
		if _, err := from.Write(b); err != nil {
			break // the other end has noticed
		}
	}
	go func() { _ = from.CloseWrite() }()
	var got []byte
	var err error
	if outlet {
		ours, program := sockets(t)
		_, err = to.WriteTo(ours)
		_ = ours.Close()
		got, _ = io.ReadAll(program)
	} else {
		got, err = io.ReadAll(to)
	}
	if want == nil {
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d, or others, and %v", len(got), len(sent), err)
		}
		return
	}
	if !bytes.HasPrefix(sent, got) || len(got) == len(sent) {
		t.Errorf("%d bytes came, which are not a beginning of the %d that were sent", len(got), len(sent))
	}
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// Routers of two paths that tell each other what they saw learn nothing from what
// was sent twice: it is the same bytes, never others under the same nonce.
func TestMaliciousRoutersCompareTwoPaths(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	for _, c := range [][2]*Conn{{e.client, e.host}, {e.host, e.client}} {
		if _, err := c[0].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	saw := [2][]byte{}
	seen := func(path int, pass bool) func(wire.Header, []byte) [][]byte {
		return func(h wire.Header, f []byte) [][]byte {
			mu.Lock()
			defer mu.Unlock()
			if h.Type == wire.Data {
				saw[path] = append(saw[path], f[wire.HeaderSize:]...)
			}
			if !pass && h.Type == wire.Data {
				return nil
			}
			return [][]byte{f}
		}
	}
	e.path.toHost.setEvil(seen(0, false))
	sent := bytes.Repeat([]byte("sent twice "), 500)
	for _, size := range []int{1, 5, 100, len(sent)} { // some share a frame the second time
		if _, err := e.client.Write(sent[:size]); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the first router saw it", func() bool { mu.Lock(); defer mu.Unlock(); return len(saw[0]) > len(sent) })
	client, host := e.client.stream, e.host.stream
	e.path.snap(client, host)
	if _, err := e.client.Write(sent); err != nil { // while there is no path
		t.Fatal(err)
	}
	next := newPathway(t, 2, client, host)
	next.toHost.setEvil(seen(1, true))
	if err := errors.Join(host.NewPath(2, next.toClient), client.NewPath(2, next.toHost)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(e.host, make([]byte, 106+2*len(sent))); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !bytes.HasPrefix(saw[1], saw[0]) {
		t.Errorf("%d bytes went over the first path, others over the second", len(saw[0]))
	}
}

// Set-up has no round trip of TLS's own: with the answer to the dial in hand, the
// client's first bytes are on their way, and the host's program has them before a
// single frame has gone back. Of a full handshake as of one that resumes.
func TestNoExtraRoundTrip(t *testing.T) {
	tr := newTrust(t)
	for _, resumed := range []bool{false, true} {
		_, flight, c, h := flights(t, tr, config(), config())
		path := newPathway(t, 1, c.Stream(), h.Stream())
		back := make(chan struct{}) // closed: frames may pass to the client
		pass := sync.OnceFunc(func() { close(back) })
		t.Cleanup(pass)
		passed := 0
		path.toClient.setEvil(func(_ wire.Header, f []byte) [][]byte {
			<-back
			passed++
			return [][]byte{f}
		})
		host, err := h.Up(1, path.toClient)
		if err != nil {
			t.Fatal(err)
		}
		client, err := c.Up(t.Context(), 1, path.toHost, flight)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write([]byte("question")); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 8)
		if _, err := io.ReadFull(host, p); err != nil || string(p) != "question" {
			t.Fatalf("%q, %v", p, err)
		}
		if passed != 0 || client.Resumed() != resumed {
			t.Errorf("resumed %v, after %d frames to the client", client.Resumed(), passed)
		}
		pass()
		if _, err := host.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, p[:6]); err != nil || string(p[:6]) != "answer" {
			t.Fatalf("%q, %v", p, err)
		}
		client.Abort(ginnel.Cancelled, "test ends")
		host.Abort(ginnel.Cancelled, "test ends")
	}
}
