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

	"github.com/ginnel/ginnel/internal/fleet"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/perf"
)

const perfLab = `
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, edgeRouters: [r1]}, {name: bob, edgeRouters: [r2]}]
services: [{name: perf}, {name: packets}]
policies:
  - {kind: dial, identities: ["@alice"], services: ["#all"]}
  - {kind: bind, identities: ["@bob"], services: ["#all"]}
`

// TestPerfOverService has both ends of perf on the SDK, with two routers between:
// streams, and datagrams.
func TestPerfOverService(t *testing.T) {
	ctx, identity := inLab(t, perfLab)
	bob, alice := identity("bob"), identity("alice")
	defer perfServer(ctx, t, "--service", "perf", "--identity", bob)()
	defer perfServer(ctx, t, "--service", "packets", "--identity", bob, "--udp")()
	awaitPerf(ctx, t, alice, "perf")
	awaitPerf(ctx, t, alice, "packets", "--udp", "--size", "25")

	out := perfRun(ctx, t, "client", "--service", "perf", "--identity", alice, "--duration", "50ms", "--streams", "2", "--json")
	got := perfResults(t, out)
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
	perfOfDatagrams(ctx, t, alice)
}

// perfOfDatagrams has another service of the same network carry datagrams.
func perfOfDatagrams(ctx context.Context, t *testing.T, alice string) {
	t.Helper()
	args := []string{"client", "--udp", "--service", "packets", "--identity", alice, "--duration", "100ms", "--size", "500", "--rate", "300"}
	got := perfResults(t, perfRun(ctx, t, append(args, "--json")...))
	if f := got["datagrams"].Datagrams; f == nil || f.Sent == 0 || f.Arrived != f.Sent || f.Size != 500 {
		t.Errorf("datagrams: got %+v", f)
	}
	if r := got["echo"]; r.Trip == nil || r.Trip.Count == 0 || r.Datagrams == nil || r.Datagrams.Loss != 0 {
		t.Errorf("echo: got %+v", r)
	}
	if out := perfRun(ctx, t, append(args, "--only", "datagrams")...); !strings.Contains(out, "DATAGRAMS/s") || !strings.Contains(out, "0.00%") {
		t.Errorf("got %s", out)
	}
}

// perfResults reads what a client printed, by measure.
func perfResults(t *testing.T, out string) map[string]perfResult {
	t.Helper()
	got := map[string]perfResult{}
	for line := range strings.Lines(out) {
		var r perfResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		got[r.Measure] = r
	}
	return got
}

// inLab opens a lab for the test, and waits until it is ready. ctx is for what is to
// be done in it, and identity gives the file of an identity.
func inLab(t *testing.T, text string) (ctx context.Context, identity func(name string) (file string)) {
	t.Helper()
	file, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	network, err := lab.Open(ctx, file, lab.Options{Plain: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := network.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, func(name string) string {
		t.Helper()
		path, err := network.Identity(name)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// perfServer serves until the function that it gives is called.
func perfServer(ctx context.Context, t *testing.T, args ...string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	root := newRootCmd()
	root.SetArgs(append([]string{"perf", "server"}, args...))
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
func awaitPerf(ctx context.Context, t *testing.T, identity, service string, args ...string) {
	t.Helper()
	t.Setenv("GINNEL_IDENTITY", identity)
	err := fleet.Until(ctx, "the host", func() (bool, error) {
		root := newRootCmd()
		root.SetArgs(append([]string{"perf", "client", "--service", service, "--only", "echo", "--duration", "1ms"}, args...))
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
