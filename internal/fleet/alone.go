// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"time"

	"github.com/ginnel/ginnel/internal/demo"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/sdk"
)

// idleMemory is what an SDK needs for MostCircuits.
const idleMemory = 1 << 30

// alone measures what the network needs by itself, and how soon it sees what broke,
// as far as that is wanted. It has a network of its own, whose processes collect
// garbage at half of what is alive, not at all of it: what a collection found alive
// is what circuits are counted by, and must not be of long ago.
func (b Bench) alone(ctx context.Context, p Program, found *perf.Comparison) error {
	return p.with(ctx, func(f *fleet, dir, server string) error {
		f.env = []string{"env", "GOGC=50"}
		n, client, err := f.bareNetwork(dir, server, longerWay())
		if err != nil {
			return err
		}
		defer n.client.Close()
		defer client.Close()
		dial := func(ctx context.Context, w way) (net.Conn, error) { return client.Dial(ctx, w.service) }
		if err := n.checkPaths(ctx, dial); err != nil {
			return err
		}
		if slices.Contains(b.Plan.Sections, perf.Alone) {
			if err := n.idle(b, client, found); err != nil {
				return err
			}
		}
		if slices.Contains(b.Plan.Sections, perf.Faults) {
			return n.faults(found)
		}
		return nil
	})
}

// idle measures what is needed while nothing is to be done.
func (n *network) idle(b Bench, client *sdk.Client, found *perf.Comparison) error {
	select {
	case <-time.After(n.fleet.program.Settled):
	case <-n.fleet.ctx.Done():
		return n.fleet.ctx.Err()
	}
	for _, m := range []struct{ process, figure string }{
		{controller, perf.MemoryController}, {edge, perf.MemoryRouter},
	} {
		used, err := n.processes[m.process].Usage()
		if err != nil {
			n.fleet.skip("memory", err)
			break
		}
		found.Add(perf.Alone, m.figure, "MiB", float64(used.Memory)/(1<<20))
	}
	dial := func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, longerWay().service) }
	if err := n.idleCircuits(dial, b.Circuits, b.Plan.InFlight, found); err != nil {
		return err
	}
	took, err := n.fleet.demo()
	if err != nil {
		return err
	}
	found.Add(perf.Alone, perf.DemoStart, "ms", milliseconds(took))
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// idleCircuits measures what a circuit that does nothing keeps in the router of its
// client, in one that it passes, and in the one where it ends.
func (n *network) idleCircuits(dial perf.Dial, count, inFlight int, found *perf.Comparison) error {
	ctx := n.fleet.ctx
	routers := []struct{ name, figure string }{
		{edge, perf.MemoryClient}, {egress, perf.MemoryRow}, {beyond, perf.MemoryEnd},
	}
	// What a router makes once, for all circuits, is none of a circuit.
	_, err := perf.Connect(ctx, dial, inFlight, perf.Bound{Count: count/10 + 1})
	if err != nil {
		return err
	}
	var before [3]float64
	for i, r := range routers {
		if before[i], err = n.alive(ctx, r.name); err != nil {
			return err
		}
	}
	end, err := perf.Hold(ctx, dial, count, inFlight)
	defer end()
	if err != nil {
		return fmt.Errorf("%d idle circuits: %w", count, err)
	}
	for i, r := range routers {
		counted, err := scrape(ctx, n.metrics[r.name])
		if err != nil {
			return err
		}
		if rows := counted["ginnel_router_circuits"]; rows < float64(count) {
			return fmt.Errorf("router %s has %g circuits, want %d", r.name, rows, count)
		}
		after, err := n.alive(ctx, r.name)
		if err != nil {
			return err
		}
		found.Add(perf.Alone, r.figure, "KiB", (after-before[i])/float64(count)/1024)
	}
	return nil
}

// alive gives the bytes that a router keeps: what was alive at its last collection,
// and stacks.
func (n *network) alive(ctx context.Context, router string) (float64, error) {
	counted, err := scrape(ctx, n.metrics[router])
	return counted["go_gc_heap_live_bytes"] + counted["go_memstats_stack_inuse_bytes"], err
}

// demo runs the demonstration to its end, and gives the time from its start to the
// first byte of the download by name.
func (f *fleet) demo() (time.Duration, error) {
	cmd := exec.CommandContext(f.ctx, f.program.Path, "demo", "--once", "--json", "--size", fmt.Sprint(demo.LeastSize>>20))
	cmd.Stderr = f.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var took time.Duration
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct {
			Step int `json:"step"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Step == 9 {
			took = time.Since(begin)
		}
	}
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("demo: %w", err)
	}
	return took, nil
}
