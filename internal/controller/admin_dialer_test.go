// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/store"
)

// setListeners writes a router's ctrl listeners as an operator would.
func (b *testbed) setListeners(id ginnel.RouterID, listeners ...ginnel.Listener) {
	b.Helper()
	b.update(func(tx *store.Tx) error {
		router, err := tx.Routers().Get(id)
		if err != nil {
			return err
		}
		router.CtrlListeners = listeners
		return tx.Routers().Put(router)
	})
}

// problems gives what validate finds, by router.
func (b *testbed) problems() map[ginnel.RouterID]string {
	b.Helper()
	all, err := b.api.Dialer.ValidateDials(b.Context())
	b.must(err)
	found := map[ginnel.RouterID]string{}
	for _, d := range all {
		if d.Problem != "" {
			found[d.Router] = d.Problem
		}
	}
	return found
}

// Each way in which store, channels and machine can disagree is found. None can
// be brought about from outside, so the machine is told lies.
func TestValidateFindsMismatches(t *testing.T) {
	for _, test := range []struct {
		name, want string
		lie        func(b *testbed, ch *channel)
	}{
		{"counts what is gone", "the machine counts a connection that is gone", func(b *testbed, _ *channel) {
			b.c.channels.mu.Lock()
			delete(b.c.channels.up, "r1")
			b.c.channels.mu.Unlock()
		}},
		{"does not count what is up", "the machine does not count the ctrl channel that is up", func(b *testbed, _ *channel) {
			b.c.dials.send(dialer.ConnUp{Key: "r1", Conn: 1})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			inTestbed(t, func(t *testing.T, b *testbed) {
				b.router("r1", "tls:r1:1")
				b.router("r2", "tls:r2:1")
				b.wait(time.Second)
				if got := b.problems(); len(got) != 0 {
					t.Fatalf("before: %v", got)
				}
				test.lie(b, b.c.channels.get("r1"))
				synctest.Wait()
				if got := b.problems(); len(got) != 1 || got["r1"] != test.want {
					t.Errorf("got %v, want %q", got, test.want)
				}
			})
		})
	}
}

// What a machine of its own is told, and what is wrong with that, given a router
// that is connected by its real channel or by none.
func TestProblems(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("up", "tls:up:1")
		ch := b.c.channels.get("up")
		up := func(change func(r *ginnel.Router)) ginnel.Router {
			r, _ := b.store.View().Routers().Get("up")
			change(&r)
			return r
		}
		down := func(disabled bool, addresses ...ginnel.Address) ginnel.Router {
			r := ginnel.Router{ID: "down", Disabled: disabled}
			for _, a := range addresses {
				r.CtrlListeners = append(r.CtrlListeners, ginnel.Listener{Address: a})
			}
			return r
		}
		src := dialer.Addresses{"up": {"tls:up:1"}, "down": {"tls:down:1"}}
		same := func(*ginnel.Router) {}
		for _, test := range []struct {
			name   string
			router ginnel.Router
			told   []dialer.Event
			want   string
		}{
			{"up and counted", up(same), []dialer.Event{dialer.ConnUp{Key: "up", Conn: ch.number}}, ""},
			{"up and unknown", up(same), nil, "the machine does not count the ctrl channel that is up"},
			{"up, another counted", up(same), []dialer.Event{dialer.ConnUp{Key: "up", Conn: 1}}, "the machine does not count the ctrl channel that is up"},
			{"up with an old key", up(func(r *ginnel.Router) { r.Key = "new" }), []dialer.Event{dialer.ConnUp{Key: "up", Conn: ch.number}}, "connected with another key than the store has"},
			{"up and disabled", up(func(r *ginnel.Router) { r.Disabled = true }), []dialer.Event{dialer.ConnUp{Key: "up", Conn: ch.number}}, "disabled, but connected or tracked"},
			{"down and counted", down(false, "tls:down:1"), []dialer.Event{dialer.ConnUp{Key: "down", Conn: 1}}, "the machine counts a connection that is gone"},
			{"down and tracked", down(false, "tls:down:1"), []dialer.Event{dialer.Updated{Key: "down"}}, ""},
			{"down and not tracked", down(false, "tls:down:1"), nil, "not connected and not going to be dialed before the next scan"},
			{"down, nowhere to dial", down(false), nil, ""},
			{"down and disabled", down(true, "tls:down:1"), nil, ""},
			{"disabled and tracked", down(true, "tls:down:1"), []dialer.Event{dialer.Updated{Key: "down"}}, "disabled, but connected or tracked"},
			{"tracked without address", down(false), []dialer.Event{dialer.Updated{Key: "down"}}, "tracked, but has no address that this controller dials"},
			{"tracked with an old address", down(false, "tls:new:1"), []dialer.Event{dialer.Updated{Key: "down"}}, "the machine has other addresses than the store"},
		} {
			cfg := dialer.Defaults()
			cfg.DialDelay = 0 // it has scanned
			m := dialer.New(cfg, dialer.FixedJitter(0), src)
			for _, ev := range append([]dialer.Event{dialer.Tick{}}, test.told...) {
				m.Step(time.Now(), ev)
			}
			if got := (dialerAdmin{b.c}).problem(m, test.router); got != test.want {
				t.Errorf("%s: got %q, want %q", test.name, got, test.want)
			}
		}
	})
}

// What is under way is no mismatch.
func TestValidateWaitsForWhatIsUnderWay(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1", "tls:r1:1")
		b.wait(10 * time.Second)
		ch := b.c.channels.get("r1")
		b.c.dials.send(dialer.ConnLost{Key: "r1", Conn: ch.number})
		// It is dialed, and the dial finds the channel that is up.
		if got := b.problems(); len(got) != 0 {
			t.Errorf("got %v", got)
		}
		if b.c.channels.get("r1") != ch {
			t.Error("the channel was closed")
		}
	})
}

// All that an operator may want to know of a router that cannot be reached.
func TestInspect(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1")
		b.setListeners("r1", ginnel.Listener{Address: "tls:a:1"}, ginnel.Listener{Address: "tls:b:1"})
		b.wait(500 * time.Millisecond)
		d, err := b.api.Dialer.InspectDial(t.Context(), "r1")
		b.must(err)
		if d.State != "NeedsDial" || d.Attempts != 1 || d.Address != "tls:b:1" || len(d.Addresses) != 2 || d.Connected {
			t.Errorf("got %+v", d)
		}
		if d.Outcome != "refused" || !strings.Contains(d.LastError, "refused") || d.ErrorAt == nil || time.Since(*d.ErrorAt) != 500*time.Millisecond {
			t.Errorf("last error: %+v at %v", d, d.ErrorAt)
		}
		if d.Next == nil || d.NextIn <= 0 || !d.Next.Equal(time.Now().Add(time.Duration(d.NextIn))) || d.Delay < ginnel.Duration(time.Second) {
			t.Errorf("next: %+v", d)
		}
	})
}

// Every change of state is one line of JSON, as soon as it happens.
func TestWatch(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		ctx, cancel := context.WithCancel(t.Context())
		recorder := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.c.API().ServeHTTP(recorder, httptest.NewRequest("GET", "/v1/dialer/watch", nil).WithContext(ctx))
		}()
		synctest.Wait()
		b.router("r1", "tls:r1:1")
		b.setListeners("r1", ginnel.Listener{Address: "tls:down:1"}, ginnel.Listener{Address: "tls:r1:1"})
		b.c.channels.get("r1").conn.Close(nil)
		b.wait(10 * time.Second)
		cancel()
		<-done
		var got []string
		for lines := bufio.NewScanner(recorder.Body); lines.Scan(); {
			var ev api.DialEvent
			b.must(json.Unmarshal(lines.Bytes(), &ev))
			if ev.Router != "r1" || ev.At.IsZero() || ev.To == "NeedsDial" && ev.Next == nil {
				t.Errorf("event %+v", ev)
			}
			got = append(got, strings.Join([]string{ev.From, ev.To, ev.Why, ev.Address, ev.Outcome}, "/"))
		}
		want := []string{
			"none/NeedsDial/updated/tls:r1:1/", "NeedsDial/Dialing/due/tls:r1:1/", "Dialing/Connected/dialed//",
			"Connected/NeedsDial/connection lost soon/tls:down:1/", "NeedsDial/Dialing/due/tls:down:1/",
			"Dialing/NeedsDial/dial failed/tls:r1:1/refused", "NeedsDial/Dialing/due/tls:r1:1/", "Dialing/Connected/dialed//",
			"Connected/none/survived//",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Metrics are there for who may use the API, in the text format.
func TestMetricsOverHTTP(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1", "tls:r1:1")
		b.router("r2")
		b.setListeners("r2", ginnel.Listener{Address: "tls:down:1"})
		b.wait(100 * time.Millisecond)
		recorder := httptest.NewRecorder()
		b.c.API().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
		text := recorder.Body.String()
		for _, want := range []string{
			`ginnel_dialer_routers{state="Connected"} 1`, `ginnel_dialer_routers{state="NeedsDial"} 1`, `ginnel_dialer_routers{state="Dialing"} 0`,
			`ginnel_dialer_dials_total{outcome="connected"} 1`, `ginnel_dialer_dials_total{outcome="refused"} 1`, `ginnel_dialer_dials_total{outcome="wrong_peer"} 0`,
			`ginnel_dialer_dial_seconds_count{ok="true"} 1`, `ginnel_dialer_dial_seconds_count{ok="false"} 1`, `ginnel_dialer_queue_seconds_count 2`,
			"ginnel_dialer_workers 64", "ginnel_dialer_running 0", "ginnel_dialer_queued 0", "ginnel_dialer_pool_full_total 0", "ginnel_controller_channels 1",
		} {
			if !strings.Contains(text, want+"\n") {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	})
}

// With one worker and one place behind it, the third of three is put off; what
// ran and what waited is counted, and all of it is taken back.
func TestPoolMetrics(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.stop()
		b.cfg.Dialer.MaxWorkers, b.cfg.Dialer.QueueSize = 1, 1
		b.start()
		for _, id := range []string{"r1", "r2", "r3"} {
			b.net.SetLatency("c1", id, 400*time.Millisecond)
			b.router(id, ginnel.Address("tls:"+id+":1"))
		}
		pool := func() (running, queued, full float64) {
			m := b.metrics()
			return m["ginnel_dialer_running"], m["ginnel_dialer_queued"], m["ginnel_dialer_pool_full_total"]
		}
		if r, q, full := pool(); r != 1 || q != 1 || full != 1 {
			t.Errorf("running %v, queued %v, full %v", r, q, full)
		}
		b.wait(time.Minute)
		if r, q, full := pool(); r != 0 || q != 0 || full < 1 {
			t.Errorf("in the end: running %v, queued %v, full %v", r, q, full)
		}
		if got := b.metrics()["ginnel_dialer_dials_total,connected"]; got != 3 {
			t.Errorf("connected %v", got)
		}
		b.update(func(tx *store.Tx) error { return tx.Routers().Delete("r3") })
		if len(b.c.dials.pace.dialing) != 0 {
			t.Error("timings are left")
		}
	})
}

// metrics gives gauges and counters by name and label.
func (b *testbed) metrics() map[string]float64 {
	b.Helper()
	families, err := b.c.Metrics().Gather()
	b.must(err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "," + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}
