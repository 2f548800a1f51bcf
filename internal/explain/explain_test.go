// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel"
)

// Each transcript is a topology and what is asked of it, answered as JSON.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		var topology *Topology
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			var from, to, service string
			d.MaybeScanArgs(t, "from", &from)
			d.MaybeScanArgs(t, "to", &to)
			d.MaybeScanArgs(t, "service", &service)
			var answer any
			var err error
			switch d.Cmd {
			case "topology":
				if topology, err = Parse("f", []byte(d.Input)); err == nil {
					return ""
				}
			case "path":
				answer, err = topology.Path(ginnel.RouterID(from), ginnel.RouterID(to))
			case "service":
				answer, err = topology.Service(ginnel.RouterID(from), service, rand.New(rand.NewPCG(1, 0)))
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			if err != nil {
				return err.Error() + "\n"
			}
			out, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			return strings.NewReplacer(`,"candidates":[`, ",\n\"candidates\":[\n  ", `},{`, "},\n  {", `,"hops":[`, ",\n\"hops\":[\n  ").Replace(string(out)) + "\n"
		})
	}
}

// Weighted shares follow 1/max(total, 1); the same seed gives the same picks.
func TestPicks(t *testing.T) {
	topology, err := Parse("f", []byte(`
minRouterCost: 0
routers: [{id: A}, {id: B}, {id: C}]
links: [{id: ab, a: A, b: B, staticCost: 10, latency: 0s}, {id: ac, a: A, b: C, staticCost: 30, latency: 0s}]
services:
  - {name: w, strategy: weighted, terminators: [{id: t1, router: B}, {id: t2, router: C}]}
  - {name: r, strategy: random, terminators: [{id: t1, router: B}, {id: t2, router: C}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	const n = 10000
	for service, want := range map[string]int{"w": 7500, "r": 5000} {
		var last map[ginnel.TerminatorID]int
		for range 2 {
			picks, err := topology.Picks("A", service, n, rand.New(rand.NewPCG(5, 0)))
			if err != nil {
				t.Fatal(err)
			}
			if got := picks["t1"]; got < want-200 || got > want+200 || got+picks["t2"] != n {
				t.Errorf("service %s: got %v, want about %d for t1", service, picks, want)
			}
			if last != nil && fmt.Sprint(last) != fmt.Sprint(picks) {
				t.Errorf("service %s: one seed, two results: %v, %v", service, last, picks)
			}
			last = picks
		}
	}
	if _, err := topology.Picks("A", "none", 1, nil); err == nil {
		t.Error("an unknown service was picked from")
	}
}

// Whatever is in a file, Parse neither panics nor gives a topology that does.
func FuzzParse(f *testing.F) {
	f.Add([]byte("routers: [{id: A}, {id: B, cost: 1e3}]\nlinks: [{id: l, a: A, b: B, latency: 1ms}]"))
	f.Add([]byte(`{"services": [{"name": "w", "terminators": [{"id": "t", "router": "A", "precedence": "required"}]}], "routers": [{"id": "A"}]}`))
	f.Add([]byte("routers: &x [*x]"))
	f.Add([]byte("minRouterCost: .inf\nrouters: [{id: 1, cost: .nan}]"))
	f.Add([]byte("A: .inf\nrouters: !00000 00000"))
	f.Add([]byte("a: !!binary x\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		topology, err := Parse("f", data)
		if err != nil {
			return
		}
		for id := range topology.known {
			if _, err := topology.Path(id, "B"); err != nil {
				continue
			}
			for name := range topology.services {
				_, _ = topology.Service(id, name, rand.New(rand.NewPCG(1, 0)))
			}
		}
	})
}
