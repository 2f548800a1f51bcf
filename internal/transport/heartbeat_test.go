// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestHeartbeatSteps(t *testing.T) {
	const s = int64(time.Second)
	type step struct {
		now, heard  int64
		probe, dead bool
		due         int64 // when not dead
	}
	for name, steps := range map[string][]step{
		"answered": {
			{0, 0, true, false, s},
			{s, s / 2, true, false, 2 * s},
			{2 * s, 3 * s / 2, true, false, 3 * s},
		},
		"silent": {
			{0, 0, true, false, s},
			{s, 0, true, false, 2 * s},
			{2 * s, 0, true, false, 3 * s},
			{3 * s, 0, false, true, 0},
		},
		"early call": {
			{0, 0, true, false, s},
			{s / 2, 0, false, false, s},
		},
		"we were stopped for a minute: one more interval": {
			{0, 0, true, false, s},
			{60 * s, 0, true, false, 61 * s},
			{61 * s, 0, false, true, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h heartbeat
			h.start(0, BeatOf(wire.ALPNLink, false))
			for _, want := range steps {
				probe, dead := h.step(want.now, want.heard)
				if probe != want.probe || dead != want.dead || !dead && h.due != want.due {
					t.Fatalf("at %d: got probe %v, dead %v, due %d, want %+v", want.now, probe, dead, h.due, want)
				}
			}
		})
	}
}

// Called when due or earlier, the machine never spins, never gives up a peer
// that was heard in time, and never keeps one that was not.
func TestHeartbeatProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		beat := BeatOf(wire.ALPNEdge, rapid.Bool().Draw(t, "circuits"))
		var h heartbeat
		h.start(0, beat)
		now, heard := int64(0), int64(0)
		for range 50 {
			_, dead := h.step(now, heard)
			if silent := now-heard >= int64(beat.Dead); dead != silent {
				t.Fatalf("at %d, heard %d: dead %v", now, heard, dead)
			}
			if dead {
				return
			}
			if h.due <= now {
				t.Fatalf("at %d: due %d", now, h.due)
			}
			now = rapid.Int64Range(now, h.due).Draw(t, "now")
			if rapid.Bool().Draw(t, "heard") {
				heard = now
			}
		}
	})
}

func TestBeatOf(t *testing.T) {
	for _, c := range []struct {
		alpn     string
		circuits bool
		want     Beat
	}{
		{wire.ALPNCtrl, false, Beat{5 * time.Second, 15 * time.Second}},
		{wire.ALPNLink, true, Beat{time.Second, 3 * time.Second}},
		{wire.ALPNEdge, false, Beat{2 * time.Second, 6 * time.Second}},
		{wire.ALPNEdge, true, Beat{time.Second, 3 * time.Second}},
	} {
		if got := BeatOf(c.alpn, c.circuits); got != c.want {
			t.Errorf("%s, circuits %v: got %v, want %v", c.alpn, c.circuits, got, c.want)
		}
	}
}

func TestL18_SilenceEndsBothSides(t *testing.T) {
	for name, ways := range map[string][][2]string{
		"both ways": {{"c", "r"}, {"r", "c"}},
		"to r":      {{"c", "r"}},
		"to c":      {{"r", "c"}},
	} {
		for _, alpn := range []string{wire.ALPNCtrl, wire.ALPNLink, wire.ALPNEdge} {
			t.Run(alpn+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { silence(t, alpn, ways) })
			})
		}
	}
}

func silence(t *testing.T, alpn string, ways [][2]string) {
	n := pipe.New()
	n.SetLatency("c", "r", 20*time.Millisecond)
	a, b := plainPair(t, n, controller("c"), router("r"), alpn)
	stop := run(receiver{}, a, b)
	pass(10 * time.Minute)
	synctest.Wait()
	if a.Err() != nil || b.Err() != nil {
		t.Fatalf("after ten quiet minutes: %v, %v", a.Err(), b.Err())
	}
	for _, w := range ways {
		n.Silence(w[0], w[1])
	}
	start := time.Now()
	limit := BeatOf(alpn, false).Dead
	for _, c := range []*Conn{a, b} {
		<-c.Done()
		if took := time.Since(start); took > limit+50*time.Millisecond || took < limit-BeatOf(alpn, false).Every {
			t.Errorf("ended after %v, want about %v", took, limit)
		}
	}
	if !errors.Is(a.Err(), ErrSilent) && !errors.Is(b.Err(), ErrSilent) {
		t.Errorf("got %v and %v, want silence", a.Err(), b.Err())
	}
	stop()
}

// A silence shorter than the limit is survived, and nothing is lost in it.
func TestShortSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, controller("c"), router("r"), wire.ALPNCtrl)
		got := 0
		stop := run(receiver{message: func(*wire.Message) error { got++; return nil }}, b)
		stopA := run(receiver{}, a)
		n.Silence("c", "r")
		for range 10 {
			must(t, a.Notify(&wire.Message{Body: &wire.Message_Done{Done: &wire.Done{}}}))
		}
		pass(9 * time.Second)
		n.Resume("c", "r")
		synctest.Wait()
		if got != 10 || a.Err() != nil || b.Err() != nil {
			t.Errorf("got %d messages, %v, %v", got, a.Err(), b.Err())
		}
		stop()
		stopA()
	})
}

// Probes measure the round trip at once and at each beat, and an edge router's
// answers carry its controllers.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		n.SetLatency("i", "r", 30*time.Millisecond)
		a, b := plainPair(t, n, identity("i"), router("r"), wire.ALPNEdge)
		var count atomic.Int32
		var last atomic.Int64
		var heard atomic.Pointer[wire.Controllers]
		a.SetProbing(Probing{
			RTT:   func(s Sample) { count.Add(1); last.Store(int64(s.RTT)) },
			Heard: heard.Store,
		})
		b.SetProbing(Probing{Controllers: func() *wire.Controllers {
			return &wire.Controllers{Controllers: []*wire.ControllerInfo{{Id: "c1", Boot: "b1", Clock: 5}}}
		}})
		stop := run(receiver{}, a, b)
		pass(31 * time.Millisecond)
		synctest.Wait()
		if rtt := time.Duration(last.Load()); count.Load() != 1 || rtt != 30*time.Millisecond {
			t.Fatalf("got %d samples, the last %v, want one of 30ms", count.Load(), rtt)
		}
		if cs := heard.Load().GetControllers(); len(cs) != 1 || cs[0].GetId() != "c1" || cs[0].GetClock() != 5 {
			t.Errorf("got controllers %v", cs)
		}
		pass(4 * time.Second)
		synctest.Wait()
		if n := count.Load(); n != 3 {
			t.Errorf("after 4 s idle: got %d samples, want 3", n)
		}
		a.SetBeat(BeatOf(wire.ALPNEdge, true))
		pass(4 * time.Second)
		synctest.Wait()
		if n := count.Load(); n < 6 || n > 8 {
			t.Errorf("after 4 s with circuits: got %d samples, want 7", n)
		}
		start := time.Now()
		if err := a.Ping(t.Context()); err != nil || time.Since(start) != 30*time.Millisecond {
			t.Errorf("ping: got %v after %v", err, time.Since(start))
		}
		n.Silence("r", "i")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ping into silence: got %v", err)
		}
		stop()
	})
}

// Probes overtake bulk that waits.
func TestProbesOvertakeData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, router("r1"), router("r2"), wire.ALPNLink)
		n.Silence("r1", "r2")
		q := a.NewQueue()
		for range 100 {
			must(t, a.SendData(nil, q, dataFrame(1, make([]byte, wire.MaxPayload))))
		}
		synctest.Wait()
		onTheWay := 100 - q.Len()/wire.MaxFrame
		stop := run(receiver{}, a) // probes at once
		synctest.Wait()
		n.Resume("r1", "r2")
		for i := range 101 {
			h, _, err := b.next()
			must(t, err)
			if h.Type != wire.Probe {
				continue
			}
			if i > onTheWay || onTheWay > 50 {
				t.Errorf("the probe came as frame %d, want behind the %d on the way", i, onTheWay)
			}
			stop()
			b.Close(nil)
			return
		}
		t.Error("no probe")
	})
}
