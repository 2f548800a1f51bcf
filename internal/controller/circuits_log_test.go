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
