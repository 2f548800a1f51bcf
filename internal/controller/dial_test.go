// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestDialsRouters(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1", "tls:r1:1")
		if !r.connected() || r.dialState().State != dialer.Connected.String() {
			t.Fatalf("not connected: %+v", r.dialState())
		}
		b.wantValid()
		b.wait(6 * time.Second)
		if d := r.dialState(); d.State != dialer.None.String() || !d.Connected {
			t.Errorf("after the window: %+v", d)
		}
		if c := b.c.channels.get("r1"); c.hello == nil || c.boot != "boot-r1" {
			t.Errorf("channel: %+v", c)
		}
		b.wantValid()
	})
}

func TestRouterDials(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
		if !r.connected() {
			t.Error("not connected")
		}
		// The first stays: it answers.
		err := r.dial()
		if survivor, ok := transport.IsDuplicate(err); !ok || !b.c.channels.has("r1", survivor) {
			t.Errorf("second channel: %v", err)
		}
		b.wantValid()
	})
}

// What comes up and is dropped again at once never erases the backoff.
func TestL01_SuccessDoesNotForgive(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		ctx, cancel := context.WithCancel(t.Context())
		var delays []time.Duration
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for ev := range b.api.Dialer.WatchDials(ctx) {
				if ev.To == dialer.NeedsDial.String() && ev.Delay > 0 {
					delays = append(delays, time.Duration(ev.Delay))
				}
			}
		}()
		synctest.Wait()
		r := b.router("r1", "tls:r1:1")
		for n := 1; n <= 8; n++ {
			for r.count() < n {
				b.wait(100 * time.Millisecond)
			}
			b.wait(200 * time.Millisecond)
			r.conn().Close(nil)
			synctest.Wait()
		}
		cancel()
		<-watched
		if len(delays) != 8 || delays[0] != time.Second || !slices.IsSorted(delays) || delays[7] < 4*time.Second {
			t.Errorf("delays: %v", delays)
		}
	})
}

// A dies in silence, the router comes back by itself, and the end of A is
// noticed when B is up: B stays.
func TestL04_LateLoss(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
		first := b.c.channels.get("r1")
		// The router's process is gone without a word: its old end hears nothing any more.
		b.net.Silence("r1", "c1")
		b.wait(time.Second)
		r.boot = "boot-r1-again"
		go func() {
			<-time.After(100 * time.Millisecond)
			b.net.Resume("r1", "c1")
		}()
		r.conn().Close(nil) // the end of its stream is held back by the silence
		if err := r.dial(); err != nil {
			t.Fatal(err)
		}
		b.wait(time.Second)
		second := b.c.channels.get("r1")
		if second == nil || second == first || second.boot != "boot-r1-again" {
			t.Fatalf("channel: %+v", second)
		}
		b.c.dials.send(dialer.ConnLost{Key: "r1", Conn: first.number})
		b.wait(20 * time.Second)
		if b.c.channels.get("r1") != second {
			t.Error("the newer channel is gone")
		}
		b.wantValid()
	})
}

func TestL15_AddressOfAnother(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		other := b.router("r2", "tls:r2:1")
		healthy := b.c.channels.get("r2")
		r := b.router("r1")
		b.update(func(tx *store.Tx) error {
			router, err := tx.Routers().Get("r1")
			router.CtrlListeners = []ginnel.Listener{{Address: "tls:r2:1"}}
			if err != nil {
				return err
			}
			return tx.Routers().Put(router)
		})
		b.wait(time.Second)
		if d := r.dialState(); d.Connected || !strings.Contains(d.LastError, "wrong peer") || d.ErrorAt == nil {
			t.Errorf("dial of r1: %+v", d)
		}
		if b.c.channels.get("r2") != healthy || other.count() != 1 {
			t.Error("the channel of r2 was touched")
		}
	})
}

func TestL16_DisabledDuringItsDial(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.net.SetLatency("c1", "r1", 800*time.Millisecond)
		r := b.router("r1", "tls:r1:1")
		b.wait(time.Second)
		if d := r.dialState(); d.State != dialer.Dialing.String() {
			t.Fatalf("not being dialed: %+v", d)
		}
		b.must(b.api.Routers.Update(t.Context(), "r1", api.RouterCreate{Router: ginnel.Router{
			Disabled: true, CtrlListeners: []ginnel.Listener{{Address: "tls:r1:1"}},
		}}))
		b.wait(10 * time.Second)
		if r.connected() || r.dialState().State != dialer.None.String() {
			t.Errorf("disabled: %+v", r.dialState())
		}
		b.wantValid()
	})
}

// A router that is connected and disabled, deleted, or enrolls another key is
// hung up at once.
func TestHungUp(t *testing.T) {
	for name, change := range map[string]func(tx *store.Tx, r ginnel.Router) error{
		"disabled": func(tx *store.Tx, r ginnel.Router) error { r.Disabled = true; return tx.Routers().Put(r) },
		"re-keyed": func(tx *store.Tx, r ginnel.Router) error { r.Key = "other"; return tx.Routers().Put(r) },
		"deleted":  func(tx *store.Tx, r ginnel.Router) error { return tx.Routers().Delete(r.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			inTestbed(t, func(t *testing.T, b *testbed) {
				r := b.router("r1", "tls:r1:1")
				b.update(func(tx *store.Tx) error {
					router, err := tx.Routers().Get("r1")
					if err != nil {
						return err
					}
					return change(tx, router)
				})
				if b.c.channels.get("r1") != nil || r.conn().Err() == nil {
					t.Error("still connected")
				}
				if err := r.dial(); err == nil {
					t.Error("connected again")
				}
			})
		})
	}
}

// After a controller's restart every router is back without being touched, and
// the new controller knows when it knows.
func TestL21_ControllerRestarts(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		for _, id := range []string{"r1", "r2", "r3"} {
			b.router(id, ginnel.Address("tls:"+id+":1"))
		}
		b.wait(5 * time.Minute)
		b.stop()
		b.routers[2].mute = true
		b.start()
		b.wait(time.Second)
		for _, r := range b.routers {
			if !r.connected() {
				t.Errorf("router %s is not back", r.id)
			}
		}
		if b.c.Ready() {
			t.Error("ready before r3 has reported")
		}
		b.routers[2].report(&wire.State{End: true})
		if !b.c.Ready() {
			t.Error("not ready after all have reported")
		}
		if routers, _ := b.c.fabric.topology().Len(); routers != 3 {
			t.Errorf("%d routers in the topology", routers)
		}
		b.wantValid()
	})
}

func TestReady(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.stop()
		b.router("silent") // nobody can dial it
		b.update(func(tx *store.Tx) error {
			return tx.Routers().Put(ginnel.Router{ID: "dead", Key: "k", CtrlListeners: []ginnel.Listener{{Address: "tls:dead:1"}}})
		})
		b.start()
		b.wait(strangerTime - time.Second)
		if b.c.Ready() {
			t.Error("ready while a router may still come")
		}
		b.wait(time.Second)
		if !b.c.Ready() {
			t.Error("not ready after the time for strangers")
		}
	})
}

func TestL23_AbsentListenersChangeNothing(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		stored := func() []ginnel.Listener {
			router, _ := b.store.View().Routers().Get("r1")
			return router.CtrlListeners
		}
		again := func(l *wire.CtrlListeners) {
			t.Helper()
			r.hello = &wire.RouterHello{CtrlListeners: l}
			if r.count() > 0 {
				r.conn().Close(nil)
				b.wait(time.Second)
			}
			b.must(r.dial())
			b.wait(time.Second)
		}
		again(&wire.CtrlListeners{Listeners: []*wire.CtrlListener{
			{Address: "tls:b:1", Groups: []string{"x"}}, {Address: "tls:a:1"},
		}})
		if got := stored(); len(got) != 2 || got[0].Address != "tls:b:1" || got[1].Address != "tls:a:1" || got[0].Groups[0] != "x" {
			t.Fatalf("stored: %v", got)
		}
		again(nil)
		if got := stored(); len(got) != 2 {
			t.Errorf("absent: stored %v", got)
		}
		again(&wire.CtrlListeners{Listeners: []*wire.CtrlListener{{Address: "http://x"}}})
		if got := stored(); len(got) != 2 {
			t.Errorf("wrong: stored %v", got)
		}
		again(&wire.CtrlListeners{})
		if got := stored(); len(got) != 0 {
			t.Errorf("empty: stored %v", got)
		}
	})
}

// Listeners of other groups are not dialed.
func TestGroups(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := ginnel.Router{ID: "r", CtrlListeners: []ginnel.Listener{
			{Address: "tls:a:1", Groups: []string{"other"}}, {Address: "tls:b:1"}, {Address: "tls:c:1", Groups: []string{"other", "default"}}, {Address: "tls:b:1"},
		}}
		if got := b.c.dialable(r); !slices.Equal(got, []ginnel.Address{"tls:b:1", "tls:c:1"}) {
			t.Errorf("dialable: %v", got)
		}
		r.Disabled = true
		if got := b.c.dialable(r); got != nil {
			t.Errorf("disabled: %v", got)
		}
	})
}

// Who watches too slowly is cut off; nobody waits for it.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w watchers[api.DialEvent]
		var events atomic.Int64
		release := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range w.watch(t.Context()) {
				events.Add(1)
				<-release
			}
		}()
		synctest.Wait()
		for range watcherQueue + 10 {
			w.publish(func() api.DialEvent { return api.DialEvent{Router: "r"} })
			if events.Load() == 0 {
				synctest.Wait() // the first one is being read
			}
		}
		close(release)
		<-done
		if got := events.Load(); got != watcherQueue+1 {
			t.Errorf("%d events before the end", got)
		}
	})
}

func TestRedial(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		if err := b.api.Dialer.Redial(t.Context(), "r1"); err == nil {
			t.Error("redialed a router that does not wait")
		}
		b.update(func(tx *store.Tx) error {
			router, err := tx.Routers().Get("r1")
			router.CtrlListeners = []ginnel.Listener{{Address: "tls:r1:1"}}
			if err != nil {
				return err
			}
			return tx.Routers().Put(router)
		})
		b.wait(5 * time.Minute)
		r.listen("tls:r1:1")
		b.must(b.api.Dialer.Redial(t.Context(), "r1"))
		if !r.connected() {
			t.Errorf("not connected: %+v", r.dialState())
		}
	})
}

// Router and controller dial each other at nearly the same instant, over and
// over: exactly one channel remains, both agree which, and it is not closed.
func TestL17_DialsCross(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		r := b.router("r1")
		r.listen("tls:r1:1")
		rng := rand.New(rand.NewPCG(17, 17))
		for range 100 {
			b.net.SetLatency("c1", "r1", time.Duration(rng.Int64N(4))*time.Millisecond)
			b.update(func(tx *store.Tx) error {
				router, err := tx.Routers().Get("r1")
				router.CtrlListeners = []ginnel.Listener{{Address: "tls:r1:1"}}
				if err != nil {
					return err
				}
				return tx.Routers().Put(router)
			})
			<-time.After(time.Duration(rng.Int64N(12000)) * time.Microsecond)
			_ = r.dial() // DUPLICATE, or the one that stays
			b.wait(2 * time.Second)
			ch := b.c.channels.get("r1")
			if ch == nil || ch.conn.Err() != nil {
				t.Fatalf("no channel remains: %+v", r.dialState())
			}
			if live := r.live(); len(live) != 1 {
				t.Fatalf("%d channels at the router", len(live))
			}
			b.wait(6 * time.Second)
			if b.c.channels.get("r1") != ch {
				t.Fatal("the channel that remained was closed")
			}
			b.wantValid()
			// Begin anew: nothing to dial, nothing connected.
			b.update(func(tx *store.Tx) error {
				router, err := tx.Routers().Get("r1")
				router.CtrlListeners = nil
				if err != nil {
					return err
				}
				return tx.Routers().Put(router)
			})
			ch.conn.Close(nil)
			b.wait(time.Second)
		}
	})
}

// Packets vanish, nothing is closed: both ends give the channel up within 16 s.
// Once packets pass again there is another as soon as the dial that runs into
// the silence has timed out, and the delay after it is over.
func TestL18_Silence(t *testing.T) {
	for name, ways := range map[string][][2]string{
		"both ways": {{"c1", "r1"}, {"r1", "c1"}}, "to the router": {{"c1", "r1"}}, "to the controller": {{"r1", "c1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inTestbed(t, func(t *testing.T, b *testbed) {
				r := b.router("r1", "tls:r1:1")
				b.wait(time.Minute)
				first := r.conn()
				for _, way := range ways {
					b.net.Silence(way[0], way[1])
				}
				b.wait(16 * time.Second)
				if r.connected() || first.Err() == nil {
					t.Errorf("connected %t, the router's end: %v", r.connected(), first.Err())
				}
				for _, way := range ways {
					b.net.Resume(way[0], way[1])
				}
				b.wait(b.cfg.Dialer.ConnectTimeout + 2*b.cfg.Dialer.MinRetryInterval)
				if !r.connected() || r.conn().Err() != nil {
					t.Errorf("not connected again: %+v", r.dialState())
				}
				b.wantValid()
			})
		})
	}
}
