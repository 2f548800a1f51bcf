// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/dialloop"
)

const dialerBenchHelp = `Measures the dial loop of a controller on this machine, in real time, with dials
that fail at once, and the processor time of a controller that is idle with its
routers connected in memory, both ends in this process:

  how late dials start, behind the instant at which they are due
  what a controller costs that has nothing to do but heartbeats`

// dialerBench is what ginnel dialer bench prints.
type dialerBench struct {
	Starts []dialStarts `json:"starts"`
	Idle   *idleCost    `json:"idle,omitempty"`
}

// dialStarts is how late the dials of one loop started.
type dialStarts struct {
	Routers   int             `json:"routers"`
	PerSecond float64         `json:"per_second"` // dials that started
	Dials     int             `json:"dials"`
	P50       ginnel.Duration `json:"p50"`
	P99       ginnel.Duration `json:"p99"`
	Max       ginnel.Duration `json:"max"`
	CPU       float64         `json:"cpu"` // processors used on average, by all that runs here
	Heap      uint64          `json:"heap_bytes"`
}

func newDialerBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how exactly dials start, and an idle controller",
		Long:  dialerBenchHelp,
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	duration := flags.Duration("duration", 5*time.Second, "how long each measurement takes")
	many := flags.Int("routers", 1_000_000, "routers of the larger measurement")
	rate := flags.Int("rate", 10_000, "its dials a second")
	peers := flags.Int("peers", 10_000, "connected routers of the idle controller; 0: leave it out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *duration <= 0 || *many < 1 || *rate < 1 || *peers < 0 {
			return usagef("--duration, --routers and --rate must be more than 0, --peers not less")
		}
		live := liveOf(cmd)
		var found dialerBench
		for _, plan := range []struct{ routers, rate int }{{100, 100}, {*many, *rate}} {
			live.say(fmt.Sprintf("dials of %d routers, %d a second", plan.routers, plan.rate))
			found.Starts = append(found.Starts, benchStarts(cmd.Context(), plan.routers, plan.rate, *duration))
		}
		if *peers > 0 {
			live.say(fmt.Sprintf("a controller with %d routers", *peers))
			idle, err := benchIdle(cmd.Context(), *peers, *duration)
			if err != nil {
				live.clear()
				return err
			}
			found.Idle = &idle
		}
		live.clear()
		if err := context.Cause(cmd.Context()); err != nil {
			return err
		}
		return printFound(cmd, found)
	}
	return cmd
}

func (b dialerBench) text() string {
	var text strings.Builder
	for _, s := range b.Starts {
		fmt.Fprintf(&text, "%9d routers tracked: %7.0f dials a second start late by p50 %v, p99 %v, max %v; %.2f processors, %d MiB\n",
			s.Routers, s.PerSecond, s.P50.Round(time.Microsecond), s.P99.Round(time.Microsecond), s.Max.Round(time.Microsecond), s.CPU, s.Heap>>20)
	}
	if i := b.Idle; i != nil {
		fmt.Fprintf(&text, "%9d routers connected, idle: %.3f processors with both ends, %d MiB\n", i.Peers, i.CPU, i.Heap>>20)
	}
	return text.String()
}

// benchStarts runs a loop whose dials fail at once and come round rate times a
// second in all.
func benchStarts(ctx context.Context, routers, rate int, duration time.Duration) dialStarts {
	cfg := dialer.Defaults()
	cfg.DialDelay, cfg.QueueSize = 0, routers
	round := time.Duration(routers) * time.Second / time.Duration(rate)
	cfg.MinRetryInterval, cfg.MaxRetryInterval = round, round
	cfg.ScanSpread = round / time.Duration(routers)
	keys := make([]dialer.Key, routers)
	for i := range keys {
		keys[i] = dialer.Key(fmt.Sprintf("r%07d", i))
	}
	addresses := []ginnel.Address{"tls:router.example:7001"}
	var late []time.Duration
	due := make(map[dialer.Key]time.Time)
	scanned := make(chan struct{})
	seen, measuring := 0, false
	loop := dialloop.New(dialloop.Options{
		Config: cfg, Random: rand.New(rand.NewPCG(1, 2)), Source: everywhere{addresses},
		Dial:  func(context.Context, dialer.Key, ginnel.Address) (uint64, error) { return 0, errBench },
		Close: func(dialer.Key, uint64) {},
		Keys: func(after dialer.Key, limit int) []dialer.Key {
			i, found := slices.BinarySearch(keys, after)
			if found {
				i++
			}
			return keys[i:min(i+limit, len(keys))]
		},
		Observe: func(_ time.Time, action dialer.Action) {
			switch a := action.(type) {
			case dialer.Moved:
				if a.From == dialer.None {
					if seen++; seen == routers {
						close(scanned)
					}
				}
				if a.To == dialer.Dialing {
					due[a.Key] = a.NextDial
				}
			case dialer.Dial:
				if measuring {
					late = append(late, time.Since(due[a.Key]))
				}
				delete(due, a.Key)
			case dialer.Hangup, dialer.Close, dialer.Scan, dialer.Answered, dialer.Ignored:
			}
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); loop.Run(ctx) }()
	defer func() { cancel(); <-done }()
	select {
	case <-scanned:
	case <-ctx.Done():
		return dialStarts{}
	}
	// What piled up while the scan ran is not what is measured.
	benchWait(ctx, min(duration, 2*time.Second))
	_ = loop.Ask(ctx, func(*dialer.Dialer) { measuring = true })
	runtime.GC()
	begun, used := time.Now(), processorTime()
	benchWait(ctx, duration)
	spent, took := processorTime()-used, time.Since(begun)
	_ = loop.Ask(ctx, func(*dialer.Dialer) { measuring = false })
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	slices.Sort(late)
	s := dialStarts{Routers: routers, Dials: len(late), PerSecond: float64(len(late)) / took.Seconds(), CPU: spent.Seconds() / took.Seconds(), Heap: memory.HeapAlloc}
	if n := len(late); n > 0 {
		s.P50, s.P99, s.Max = ginnel.Duration(late[n/2]), ginnel.Duration(late[n*99/100]), ginnel.Duration(late[n-1])
	}
	return s
}

var errBench = errors.New("nobody is there")

// everywhere says that every router is at the same addresses.
type everywhere struct{ addresses []ginnel.Address }

// Addresses implements dialer.Source.
func (e everywhere) Addresses(dialer.Key) []ginnel.Address { return e.addresses }

// benchWait waits for d or until ctx ends.
func benchWait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
