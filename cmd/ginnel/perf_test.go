// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/perf"
)

const perfLab = `
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, edgeRouters: [r1]}, {name: bob, edgeRouters: [r2]}]
services: [{name: perf}]
policies:
  - {kind: dial, identities: ["@alice"], services: ["@perf"]}
  - {kind: bind, identities: ["@bob"], services: ["@perf"]}
`

// TestPerfOverService has both ends of perf on the SDK, with two routers between.
func TestPerfOverService(t *testing.T) {
	file, err := lab.Parse([]byte(perfLab))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	network, err := lab.Open(ctx, file, lab.Options{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := network.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	stop := perfServer(ctx, t, identityOf(t, network, "bob"))
	defer stop()
	alice := identityOf(t, network, "alice")
	awaitPerf(ctx, t, alice)

	out := perfRun(ctx, t, "client", "--service", "perf", "--identity", alice, "--duration", "50ms", "--streams", "2", "--json")
	got := map[string]perfResult{}
	for line := range strings.Lines(out) {
		var r perfResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got[r.Measure] = r
	}
	if len(got) != len(perfKinds()) {
		t.Fatalf("got %d measurements of %q", len(got), out)
	}
	for name, f := range map[string]*perf.Flow{
		"up": got["up"].Up, "down": got["down"].Down, "both up": got["both"].Up, "both down": got["both"].Down,
	} {
		if f == nil || f.Streams != 2 || f.Bytes == 0 {
			t.Errorf("%s: got %+v", name, f)
		}
	}
	if r := got["echo"].Trip; r == nil || r.Count == 0 {
		t.Errorf("echo: got %+v", r)
	}
	for name, inFlight := range map[string]int{"connect": 1, "rate": 32} {
		if c := got[name].Connections; c == nil || c.InFlight != inFlight || c.Latency.Count == 0 {
			t.Errorf("%s: got %+v", name, c)
		}
	}
}

func identityOf(t *testing.T, network *lab.Lab, name string) string {
	t.Helper()
	path, err := network.Identity(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// perfServer serves until the function that it gives is called.
func perfServer(ctx context.Context, t *testing.T, identity string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	root := newRootCmd()
	root.SetArgs([]string{"perf", "server", "--service", "perf", "--identity", identity})
	root.SetErr(new(bytes.Buffer))
	go func() { ended <- root.ExecuteContext(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("perf server: %v", err)
		}
	}
}

// awaitPerf waits until the service has its host.
func awaitPerf(ctx context.Context, t *testing.T, identity string) {
	t.Helper()
	t.Setenv("GINNEL_IDENTITY", identity)
	err := until(ctx, "the host", func() (bool, error) {
		root := newRootCmd()
		root.SetArgs([]string{"perf", "client", "--service", "perf", "--only", "echo", "--duration", "1ms"})
		root.SetOut(new(bytes.Buffer))
		root.SetErr(new(bytes.Buffer))
		err := root.ExecuteContext(ctx)
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func perfRun(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCmd()
	root.SetArgs(append([]string{"perf"}, args...))
	root.SetOut(&out)
	root.SetErr(os.Stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
