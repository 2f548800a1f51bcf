// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
)

const controllerBenchHelp = `Fill a store on this machine's disk with a large network, start a controller on it,
and measure:

  start      from opening the store until the controller takes routers
  memory     the heap of store and controller, and what this process occupies
  chosen     from a dial whose signature was verified until terminator and path are chosen
  decision   from a dial whose signature was verified until its Routes are handed out:
             policy, candidates, path, terminator, ticket
  change     from a service that is stored until a subscribed client whom it concerns
             is told, and what decisions take meanwhile
  burst      decisions while services and policies are written as fast as it goes

Routers and clients are in this process and in memory, and cost it time as well. They speak
as real ones do: every dial is signed, every Route goes out over a ctrl channel.`

// controllerBench is what ginnel controller bench prints.
type controllerBench struct {
	Services    int             `json:"services"`
	Identities  int             `json:"identities"`
	Policies    int             `json:"policies"`
	Routers     int             `json:"routers"`
	Subscribers int             `json:"subscribers"`
	Fill        ginnel.Duration `json:"fill"`
	Start       ginnel.Duration `json:"start"`
	Heap        uint64          `json:"heap_bytes"`     // of store and controller, before routers connect
	Resident    uint64          `json:"resident_bytes"` // of the process then; 0: not known here
	Chosen      decisions       `json:"chosen"`         // of the same dials as Idle, without ticket and sending
	Idle        decisions       `json:"idle"`
	Change      changeCost      `json:"change"`
	Burst       burstCost       `json:"burst"`
	HeapAfter   uint64          `json:"heap_bytes_after"` // with routers and subscribers, when all is over
	HeapBefore  uint64          `json:"heap_bytes_before"`
}

// decisions is how long decisions took. Percentiles are bounds from above,
// 15 % apart.
type decisions struct {
	Dials int             `json:"dials"`
	P50   ginnel.Duration `json:"p50"`
	P99   ginnel.Duration `json:"p99"`
	Max   ginnel.Duration `json:"max"`
}

// changeCost is what a single change of the store costs.
type changeCost struct {
	Changes   int             `json:"changes"`
	Told      ginnel.Duration `json:"told"` // the median until the last client that it concerns has heard
	ToldMax   ginnel.Duration `json:"told_max"`
	Concerned int             `json:"concerned"` // clients, of each change
	Lists     int             `json:"lists"`     // lists that were sent for all of them
	Decisions decisions       `json:"decisions"`
}

// burstCost is what many changes cost.
type burstCost struct {
	Writes    int             `json:"writes"`
	PerSecond float64         `json:"per_second"`
	Settled   ginnel.Duration `json:"settled"` // from the last write until the last list
	Lists     int             `json:"lists"`
	Decisions decisions       `json:"decisions"`
}

// benchSize is how large a network is measured.
type benchSize struct {
	services, identities, policies, routers, subscribers, dials, changes, writes int
}

func newControllerBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure dial decisions of a controller with a large store",
		Long:  controllerBenchHelp,
		Args:  cobra.NoArgs,
	}
	var size benchSize
	flags := cmd.Flags()
	flags.IntVar(&size.services, "services", 100_000, "services in the store, each with a terminator")
	flags.IntVar(&size.identities, "identities", 10_000, "identities in the store")
	flags.IntVar(&size.policies, "policies", 1_000, "policies in the store")
	flags.IntVar(&size.routers, "routers", 100, "routers that are connected")
	flags.IntVar(&size.subscribers, "subscribers", 1_000, "clients that are connected and told of their services")
	flags.IntVar(&size.dials, "dials", 5_000, "dials of the measurement of decisions")
	flags.IntVar(&size.changes, "changes", 20, "single changes that are measured")
	flags.IntVar(&size.writes, "writes", 2_000, "changes of the burst")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.check(); err != nil {
			return usageError{err}
		}
		live := liveOf(cmd)
		found, err := benchController(cmd.Context(), size, live.say)
		live.clear()
		if err != nil {
			return err
		}
		return printFound(cmd, found)
	}
	return cmd
}

func (s benchSize) check() error {
	for _, n := range []int{s.services, s.identities, s.policies, s.subscribers, s.dials, s.changes, s.writes} {
		if n < 1 {
			return errors.New("every number must be at least 1")
		}
	}
	switch {
	case s.routers < benchRegions:
		return fmt.Errorf("--routers must be at least %d", benchRegions)
	case s.subscribers > s.identities:
		return errors.New("--subscribers must be at most --identities")
	}
	return nil
}

func (b controllerBench) text() string {
	var text strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "  %-34s %s\n", name, fmt.Sprintf(format, args...))
	}
	short := func(d ginnel.Duration) string { return time.Duration(d).Round(time.Microsecond).String() }
	many := func(d decisions) string {
		return fmt.Sprintf("p50 %s, p99 %s, longest %s (%d dials)", short(d.P50), short(d.P99), short(d.Max), d.Dials)
	}
	fmt.Fprintf(&text, "dial decision: %d services, %d identities, %d policies, %d routers, %d subscribed clients\n",
		b.Services, b.Identities, b.Policies, b.Routers, b.Subscribers)
	row("store filled in", "%s", time.Duration(b.Fill).Round(10*time.Millisecond))
	row("start", "%s", time.Duration(b.Start).Round(time.Millisecond))
	row("memory after the start", "heap %d MiB, process %d MiB", b.Heap>>20, b.Resident>>20)
	row("chosen", "%s", many(b.Chosen))
	row("decision", "%s", many(b.Idle))
	row("service created, clients told", "median %s, longest %s; %d clients each, %d lists", short(b.Change.Told), short(b.Change.ToldMax), b.Change.Concerned, b.Change.Lists)
	row("decision meanwhile", "%s", many(b.Change.Decisions))
	row("burst of writes", "%d, %.0f a second; settled %s after the last, %d lists", b.Burst.Writes, b.Burst.PerSecond, short(b.Burst.Settled), b.Burst.Lists)
	row("decision meanwhile", "%s", many(b.Burst.Decisions))
	row("heap before and after all changes", "%d and %d MiB", b.HeapBefore>>20, b.HeapAfter>>20)
	return text.String()
}

// benchController does it all in a directory that is gone afterwards.
func benchController(ctx context.Context, size benchSize, say func(string)) (found controllerBench, err error) {
	dir, err := os.MkdirTemp("", "ginnel-controller-*")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	found = controllerBench{
		Services: size.services, Identities: size.identities, Policies: size.policies, Routers: size.routers, Subscribers: size.subscribers,
	}
	say(fmt.Sprintf("writing %d services", size.services))
	begun := time.Now()
	net, err := newBenchNet(size)
	if err != nil {
		return found, err
	}
	if err := withStore(ctx, dir, func(st *store.Store) error { return net.fill(ctx, st) }); err != nil {
		return found, err
	}
	found.Fill = ginnel.Duration(time.Since(begun))

	debug.FreeOSMemory()
	before := heapInUse()
	begun = time.Now()
	err = withStore(ctx, dir, func(st *store.Store) (err error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if err := net.start(ctx, st, cancel); err != nil {
			return err
		}
		defer net.running.Wait()
		defer cancel(nil)
		found.Start = ginnel.Duration(time.Since(begun))
		found.Resident = residentBytes()
		found.Heap = heapInUse() - before
		say("connecting routers and clients")
		if err := net.connect(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		return errors.Join(net.measure(ctx, &found, say), context.Cause(ctx))
	})
	return found, err
}

// withStore opens the store in a directory for as long as use uses it.
func withStore(ctx context.Context, dir string, use func(*store.Store) error) (err error) {
	backend, err := etcd.Open(ctx, dir, etcd.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	st, err := store.New(ctx, backend, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return use(st)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// residentBytes gives what the process occupies of the machine's memory; 0
// where the system does not tell.
func residentBytes() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(fields[0], 10, 64)
	return kib << 10
}
