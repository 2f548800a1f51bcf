// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// reroute gives both ends their next path, with or without a break before.
func (e *ends) reroute(t testing.TB, snap bool) error {
	client, host := e.client.stream, e.host.stream
	old := e.path
	if snap {
		old.snap(client, host)
	}
	g := old.generation + 1
	e.path = newPathway(t, g, client, host)
	err := errors.Join(host.NewPath(g, e.path.toClient), client.NewPath(g, e.path.toHost))
	old.end()
	return err
}

// counter gives bytes that tell their place in the stream, until it is stopped.
type counter struct {
	sum  hash.Hash
	n    int64
	stop *atomic.Bool
}

func (c *counter) Read(p []byte) (int, error) {
	if c.stop.Load() {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = byte(c.n ^ c.n>>8 ^ c.n>>16)
		c.n++
	}
	c.sum.Write(p)
	return len(p), nil
}

// mend breaks the path somewhere in its middle, and it is whole again at once.
func (e *ends) mend() error {
	for _, t := range []wire.Type{wire.PathBroken, wire.PathMended} {
		for _, s := range []*Stream{e.host.stream, e.client.stream} {
			s.Frame(e.path.generation, wire.Header{Type: t}, nil)
		}
	}
	return nil
}

// 1,000 other paths while data flows both ways, every other one because the old
// one broke: no byte is lost, doubled or reordered.
func TestL65_Rerouted1000Times(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	e.survive(t, func(i int) error { return e.reroute(t, i%2 == 0) })
}

// 1,000 breaks that are mended, each of which throws away what waits at both ends:
// that must cost no credit, or the path is shut in the end and nobody says so.
func TestL65_Mended1000Times(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	e.survive(t, func(int) error { return e.mend() })
}

// survive does something to the path 1,000 times while data flows both ways: no byte is
// lost, doubled or reordered.
func (e *ends) survive(t *testing.T, harm func(i int) error) {
	var stop atomic.Bool
	var moved [2]atomic.Int64
	var sent, got [2][]byte
	var wg sync.WaitGroup
	for i, end := range []*Conn{e.client, e.host} {
		wg.Go(func() {
			src := &counter{sum: sha256.New(), stop: &stop}
			if _, err := io.CopyBuffer(end, src, make([]byte, 8<<10)); err != nil {
				t.Error(err)
			}
			_ = end.CloseWrite()
			sent[i] = src.sum.Sum(nil)
		})
		wg.Go(func() {
			sum := sha256.New()
			p := make([]byte, 32<<10)
			for {
				n, err := end.Read(p)
				sum.Write(p[:n])
				moved[1-i].Add(int64(n))
				if err != nil {
					if !errors.Is(err, io.EOF) {
						t.Error(err)
					}
					break
				}
			}
			got[1-i] = sum.Sum(nil)
		})
	}
	for i := range 1000 {
		before := moved[0].Load()
		if err := harm(i); err != nil {
			t.Fatal(err)
		}
		for i%10 == 0 && moved[0].Load() == before { // not only breaks: data, too
			time.Sleep(50 * time.Microsecond)
		}
	}
	stop.Store(true)
	wg.Wait()
	for i := range sent {
		if !bytes.Equal(sent[i], got[i]) {
			t.Errorf("direction %d: checksum differs after %d bytes", i, moved[i].Load())
		}
	}
	t.Logf("%d and %d bytes", moved[0].Load(), moved[1].Load())
}

// The path breaks at every point of an exchange with half-closes and with both
// ends closing; whatever was lost with it, both ends come to their end.
func TestBreakWhileClosing(t *testing.T) {
	for name, exchange := range map[string]func(e ends) error{
		"client half-closes first": func(e ends) error {
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(e.host, e.host)
				done <- errors.Join(err, e.host.CloseWrite())
			}()
			_, err := e.client.Write([]byte("hello"))
			err = errors.Join(err, e.client.CloseWrite())
			got, rerr := io.ReadAll(e.client)
			if string(got) != "hello" {
				err = errors.Join(err, errors.New("got "+string(got)))
			}
			return errors.Join(err, rerr, <-done)
		},
		"both half-close at once": func(e ends) error {
			done := make(chan error, 1)
			go func() {
				err := e.host.CloseWrite()
				_, rerr := io.ReadAll(e.host)
				done <- errors.Join(err, rerr)
			}()
			err := e.client.CloseWrite()
			_, rerr := io.ReadAll(e.client)
			return errors.Join(err, rerr, <-done)
		},
		"both close": func(e ends) error {
			go e.host.Close()
			return e.client.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for lost := range 12 { // the frame, of either direction, that breaks the path
				synctest.Test(t, func(t *testing.T) {
					cc, hc := config(), config()
					all := cc.Budget.Left()
					wants := make(chan flow.Want, 100)
					cc.Wants = func(w flow.Want) { wants <- w }
					e := dial(t, newTrust(t), cc, hc)
					synctest.Wait()
					start := time.Now()
					var frames atomic.Int64
					broken := make(chan struct{})
					lose := func(wire.Header) bool {
						n := frames.Add(1)
						if n == int64(lost)+1 {
							close(broken)
						}
						return n > int64(lost)
					}
					e.path.toHost.setLose(lose)
					e.path.toClient.setLose(lose)
					result := make(chan error, 1)
					go func() { result <- exchange(e) }()
					var err error
					select {
					case <-broken:
						time.Sleep(time.Second)
						e.path.snap(e.client.stream, e.host.stream)
						select {
						case <-wants:
							err = e.reroute(t, false)
						case <-e.client.stream.Done():
						}
					case <-e.client.stream.Done(): // fewer frames than that
					}
					if err != nil && !errors.Is(err, ginnel.PeerDetached) {
						t.Error(err)
					}
					if err := <-result; err != nil {
						t.Errorf("frame %d: %v", lost, err)
					}
					<-e.client.stream.Done()
					<-e.host.stream.Done()
					if d := time.Since(start); d > time.Second+2*rest && name != "both close" {
						t.Errorf("frame %d: over after %v", lost, d)
					}
					if cc.Budget.Left() != all || hc.Budget.Left() != all {
						t.Errorf("frame %d: kept %d and %d bytes", lost, all-cc.Budget.Left(), all-hc.Budget.Left())
					}
				})
			}
		})
	}
}

// A client wants a path once for each that did not help, not once a frame.
func TestWantsAgainAndNotInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wants atomic.Int64
		cc := config()
		cc.Wants = func(flow.Want) { wants.Add(1) }
		e := dial(t, newTrust(t), cc, config())
		client := e.client.stream
		e.path.snap(client, e.host.stream)
		for range 100 {
			client.ConnLost(1)
			client.Frame(1, wire.Header{Type: wire.PathBroken}, nil)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := wants.Load(); n != 1 || client.Wanted() != flow.WantPath {
			t.Errorf("got %d wants, %v, want 1", n, client.Wanted())
		}
		for g := range uint32(5) { // paths on which nobody answers
			if err := client.NewPath(g+2, newHop(9)); err != nil {
				t.Fatal(err)
			}
			if client.Wanted() != flow.WantNothing {
				t.Error("still wants a path that it got")
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if n := wants.Load(); n != int64(g)+2 {
				t.Errorf("got %d wants after path %d", n, g+2)
			}
		}
		before := wants.Load()
		for range 1000 { // a router that says broken, mended, broken, mended
			client.Frame(6, wire.Header{Type: wire.PathBroken}, nil)
			client.Frame(6, wire.Header{Type: wire.PathMended}, nil)
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		if n := wants.Load() - before; n > 5 {
			t.Errorf("got %d wants in a second", n)
		}
	})
}
