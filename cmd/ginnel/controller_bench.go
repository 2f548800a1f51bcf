// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/bench"
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

func newControllerBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure dial decisions of a controller with a large store",
		Long:  controllerBenchHelp,
	}
	var size bench.Size
	flags := cmd.Flags()
	flags.IntVar(&size.Services, "services", 100_000, "services in the store, each with a terminator")
	flags.IntVar(&size.Identities, "identities", 10_000, "identities in the store")
	flags.IntVar(&size.Policies, "policies", 1_000, "policies in the store")
	flags.IntVar(&size.Routers, "routers", 100, "routers that are connected")
	flags.IntVar(&size.Subscribers, "subscribers", 1_000, "clients that are connected and told of their services")
	flags.IntVar(&size.Dials, "dials", 5_000, "dials of the measurement of decisions")
	flags.IntVar(&size.Changes, "changes", 20, "single changes that are measured")
	flags.IntVar(&size.Writes, "writes", 2_000, "changes of the burst")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := size.Check(); err != nil {
			return usageError{err}
		}
		live := liveOf(cmd)
		found, err := bench.MeasureController(cmd.Context(), size, live.say)
		live.clear()
		if err != nil {
			return err
		}
		return printFound(cmd, found, controllerBenchText(found))
	}
	return cmd
}

// controllerBenchText gives what was measured for people.
func controllerBenchText(b bench.Controller) string {
	var text strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "  %-34s %s\n", name, fmt.Sprintf(format, args...))
	}
	short := func(d ginnel.Duration) string { return time.Duration(d).Round(time.Microsecond).String() }
	many := func(d bench.Decisions) string {
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
