// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// The circuit log is one line for each set-up that ended, and metrics count
// them by code; a code that only a router knows makes no counter of its own.
func TestCircuitLog(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		var out bytes.Buffer
		w.c.log = slog.New(slog.NewJSONHandler(&out, nil))
		line := func() map[string]any {
			t.Helper()
			synctest.Wait()
			fields := make(map[string]any)
			if err := json.Unmarshal(out.Bytes(), &fields); err != nil {
				t.Fatalf("%q: %v", out.String(), err)
			}
			out.Reset()
			return fields
		}
		logged := func(want map[string]any) {
			t.Helper()
			got := line()
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%s is %v, want %v", key, got[key], value)
				}
			}
			if got["took"] == nil {
				t.Error("took is missing")
			}
		}
		r := w.dial(nil).response()
		logged(map[string]any{
			"kind": "dial", "circuit_id": r.GetCircuit(), "service": "web", "identity": "alice", "router_id": "A",
			"code": "OK", "peer": "router/C", "terminator_id": "t1", "attempts": 1.0,
		})
		w.resume(r.GetTicket(), 1).response()
		logged(map[string]any{"kind": "resume", "circuit_id": r.GetCircuit(), "service": "web", "identity": "alice", "code": "OK", "peer": "router/C"})
		w.dial(func(d *wire.Dial) { d.Service = "none" }).failure(ginnel.InvalidService)
		logged(map[string]any{"kind": "dial", "service": "none", "identity": "alice", "code": "INVALID_SERVICE"})

		w.dial(func(d *wire.Dial) { d.Audience = nil }).failure(ginnel.NotAuthenticated)
		if synctest.Wait(); out.Len() != 0 {
			t.Errorf("a stranger makes us log %s", out.String())
		}
		for code := range ginnel.Code(100) {
			w.nodes["A"].set(refuse(1000 + code))
			w.dial(nil).failure(1000 + code)
		}
		want := map[string]float64{"OK": 1, "INVALID_SERVICE": 1, "NOT_AUTHENTICATED": 1, "OTHER": 100}
		if got := w.counted("ginnel_circuit_dials_total"); !maps.Equal(got, want) {
			t.Errorf("dials by code: %v, want %v", got, want)
		}
		if got := w.counted("ginnel_circuit_resumes_total"); !maps.Equal(got, map[string]float64{"OK": 1}) {
			t.Errorf("resumes by code: %v", got)
		}
	})
}

// The phases of a set-up are measured, each as long as it took, and together they are
// the time from the request to its answer.
func TestSetupPhases(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		const ms = time.Millisecond
		w.nodes["B"].set(after(20*ms, refuse(ginnel.RouterErrResourcesNotAvailable)))
		w.nodes["D"].set(after(30*ms, agree))
		w.nodes["C"].set(func(r *fakeRouter, route *wire.Route) {
			r.connecting(route)
			after(70*ms, agree)(r, route)
		})
		c := w.dial(nil)
		c.response()
		w.dial(func(d *wire.Dial) { d.Service = "none" }).failure(ginnel.InvalidService)
		want := map[string]time.Duration{
			phaseVerify: 0, phaseQueue: 0, phaseRetry: 20 * ms, phaseDecide: 0, phaseRoute: 30 * ms, phaseConnect: 40 * ms, phaseAnswer: 0,
		}
		families, err := w.c.metrics.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		took := make(map[string]time.Duration)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				h := m.GetHistogram()
				seconds := time.Duration(h.GetSampleSum() * float64(time.Second)).Round(ms / 10)
				switch f.GetName() {
				case "ginnel_circuit_phase_seconds":
					took[m.GetLabel()[0].GetValue()] = seconds
				case "ginnel_circuit_setup_seconds":
					if seconds != 90*ms || h.GetSampleCount() != 1 {
						t.Errorf("%d set-ups took %v, want one of 90ms", h.GetSampleCount(), seconds)
					}
				}
			}
		}
		if !maps.Equal(took, want) {
			t.Errorf("phases took %v, want %v", took, want)
		}
	})
}

// counted gives the counters of a name by their label.
func (w *circuitWorld) counted(name string) map[string]float64 {
	w.t.Helper()
	families, err := w.c.metrics.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	counters := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				counters[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return counters
}
