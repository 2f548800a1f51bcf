// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// deaf is a hop behind which nobody is.
type deaf struct{}

func (deaf) Label() uint32         { return 1 }
func (deaf) RTT() time.Duration    { return 0 }
func (deaf) Urgent(Batch, []byte)  {}
func (deaf) Ordered(Batch, []byte) {}
func (deaf) Drop() int             { return 0 }
func (deaf) Stalled()              {}

// counted counts the slabs that are out.
type counted struct {
	mu        sync.Mutex
	out, most int
}

func (l *counted) Get() *flow.Slab {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out++
	l.most = max(l.most, l.out)
	return new(flow.Slab)
}

func (l *counted) Put(*flow.Slab) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
}

// randomFrame gives a frame of any type with a payload that may make sense.
func randomFrame(rng *rand.Rand, data []byte) (uint32, wire.Header, []byte) {
	counts := []uint64{0, 1, 100, 16384, 1 << 20, 1<<64 - 1}
	n := counts[rng.IntN(len(counts))]
	generation := uint32(rng.IntN(4))
	h := wire.Header{Label: rng.Uint32(), Type: wire.Type(rng.IntN(14)), Flags: uint8(rng.IntN(3))}
	var p []byte
	switch {
	case rng.IntN(20) == 0:
		p = data[:rng.IntN(40)]
	case h.Type == wire.Data:
		p = data[:rng.IntN(len(data))]
	case h.Type == wire.Ack, h.Type == wire.Credit:
		p = binary.BigEndian.AppendUint64(nil, n)
	case h.Type == wire.ResumeAt:
		p = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, generation), n)
	case h.Type == wire.Reset && rng.IntN(50) > 0:
		h.Type = wire.Data
		p = data[:1]
	case h.Type == wire.Reset:
		p = []byte{0, byte(rng.IntN(30)), 'x'}
	}
	h.Length = len(p)
	return generation, h, p
}

// A peer, or a router on the way, may send any frame at any time: no panic, no
// memory without bound, and when the end is aborted nothing is left of it.
func TestAnyFrameInAnyState(t *testing.T) {
	data := make([]byte, wire.MaxPayload)
	tr := newTrust(t)
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		slabs := &counted{}
		cfg := config()
		cfg.Slabs = slabs
		all := cfg.Budget.Left()
		_, flight, c, h := flights(t, tr, cfg, cfg)
		conns, streams := []*Conn{}, []*Stream{c.Stream(), h.Stream()}
		if host, err := h.Up(1, deaf{}); err == nil {
			conns = append(conns, host)
		}
		if client, err := c.Up(t.Context(), 1, deaf{}, flight); err == nil {
			conns = append(conns, client)
		}
		for range 400 {
			s := streams[rng.IntN(2)]
			switch rng.IntN(60) {
			case 0:
				_ = s.NewPath(uint32(rng.IntN(4)), deaf{})
			case 1:
				s.ConnLost(uint32(rng.IntN(4)))
			case 2:
				s.ConnBack(uint32(rng.IntN(4)), deaf{})
			case 3:
				if len(conns) > 0 && rng.IntN(8) == 0 {
					_ = conns[rng.IntN(len(conns))].Close()
				}
			case 4:
				_, _ = s.Write(nil)
			default:
				s.Frame(randomFrame(rng, data))
			}
		}
		for _, s := range streams {
			s.Reset(ginnel.Cancelled, "test ends")
			s.overdue() // who never spoke hears nothing
			_ = s.Close()
			<-s.Done()
			<-s.handshake
			s.Frame(randomFrame(rng, data))
		}
		for _, c := range conns {
			_, _ = io.Copy(io.Discard, c)
		}
		if cfg.Budget.Left() != all || slabs.out != 0 {
			t.Fatalf("seed %d: %d bytes of the budget and %d slabs are gone", seed, all-cfg.Budget.Left(), slabs.out)
		}
		if slabs.most > 2*64 {
			t.Errorf("seed %d: %d slabs at once", seed, slabs.most)
		}
	}
}

// longCache puts a long session in the way of the first ClientHello.
type longCache struct {
	tls.ClientSessionCache
	long *tls.ClientSessionState
}

func (c longCache) Get(key string) (*tls.ClientSessionState, bool) { return c.long, true }

// A session whose ticket has no room in a Dial is left out, and the circuit
// comes up with a full handshake.
func TestSessionTooLongForADial(t *testing.T) {
	tr := newTrust(t)
	e := dial(t, tr, config(), config())
	go func() { _, _ = e.host.Write([]byte("x")) }()
	if _, err := io.ReadFull(e.client, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	session, ok := tr.cache.Get("web")
	if !ok {
		t.Fatal("no session")
	}
	_, state, err := session.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	long, err := tls.NewResumptionState(make([]byte, 2*wire.MaxEarlyOut), state)
	if err != nil {
		t.Fatal(err)
	}
	tr.cache = longCache{tls.NewLRUClientSessionCache(1), long}
	e = dial(t, tr, config(), config())
	go func() { _, _ = e.host.Write([]byte("y")) }()
	if _, err := io.ReadFull(e.client, make([]byte, 1)); err != nil || e.client.Resumed() {
		t.Errorf("%v, resumed %v", err, e.client.Resumed())
	}
}

// Everything at once, at any moment: what a program does to an end from many
// goroutines, and what happens to its path. Both ends come to an end, nothing
// is left, and bytes that were read are those that were written.
func TestStress(t *testing.T) {
	seeds := uint64(150)
	if raceOn {
		seeds = 60
	}
	base := rand.Uint64()
	for i := range seeds {
		stress(t, base+i)
		if t.Failed() {
			t.Logf("seed %d", base+i)
			return
		}
	}
}

func stress(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 2))
		cfg := config()
		slabs := &counted{}
		cfg.Slabs = slabs
		cfg.ResumeTimeout = 5 * time.Second
		all := cfg.Budget.Left()
		_, flight, c, h := flights(t, newTrust(t), cfg, cfg)
		path := newPathway(t, 1, c.Stream(), h.Stream())
		e := ends{path: path}
		var wg sync.WaitGroup
		soon := func() time.Duration { return time.Duration(rng.IntN(2000)) * time.Millisecond }
		act := func(in time.Duration, fn func()) { wg.Go(func() { time.Sleep(in); fn() }) }
		ctx := t.Context()
		if rng.IntN(4) == 0 {
			act(soon(), func() { c.Fail(errors.New("late")); h.Fail(nil) })
		}
		host, err := h.Up(1, path.toClient)
		if err != nil {
			t.Fatal(err)
		}
		client, err := c.Up(ctx, 1, path.toHost, flight)
		if err != nil {
			t.Fatal(err)
		}
		e.client, e.host = client, host
		for _, end := range []*Conn{client, host} {
			for range 2 {
				p := make([]byte, rng.IntN(300<<10))
				act(soon(), func() { _, _ = end.Write(p) })
			}
			act(soon(), func() { _, _ = io.Copy(io.Discard, end) })
			for _, fn := range []func(){
				func() { _ = end.Close() },
				func() { _ = end.CloseWrite() },
				func() { end.Abort(ginnel.PeerReset, "stress") },
				func() { _ = end.SetDeadline(time.Now().Add(7 * time.Millisecond)) },
				func() { _ = end.SetDeadline(time.Time{}) },
				func() { end.stream.ConnLost(1) },
				func() { end.stream.ConnBack(1, end.stream.hopNow()) },
			} {
				if rng.IntN(3) == 0 {
					act(soon(), fn)
				}
			}
			act(3*time.Second, func() { _ = end.Close(); _ = end.Close() })
		}
		if rng.IntN(2) == 0 {
			n := rng.IntN(4)
			act(soon(), func() {
				for range n {
					_ = e.reroute(t, true)
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		<-client.stream.Done()
		<-host.stream.Done()
		<-client.stream.handshake
		<-host.stream.handshake
		synctest.Wait()
		if cfg.Budget.Left() != all || slabs.out != 0 {
			t.Errorf("%d bytes of the budget and %d slabs are gone", all-cfg.Budget.Left(), slabs.out)
		}
	})
}

func (s *Stream) hopNow() Hop {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hop == nil {
		return deaf{}
	}
	return s.hop
}
