// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/intercept"
	"github.com/ginnel/ginnel/internal/perf"
)

const tunnelBenchHelp = `Measure what intercepting costs, on this machine, in a network namespace made for it:

  connect + first byte   by name, through our resolver and intercepted, beside a dial of
                         this program's own by the SDK
  throughput             of one intercepted stream, beside one through --listen

Both go over the same two routers to the same server, in turns, round by round. Shown
are medians. It takes root, and Linux; elsewhere it says so and measures nothing.`

// newTunnelBenchCmd gives ginnel tunnel bench, which make bench calls.
func newTunnelBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what intercepting costs on this machine",
		Long:  tunnelBenchHelp,
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	rounds := flags.Int("rounds", 3, "how often everything is measured")
	connects := flags.Int("connects", 200, "connections of each round")
	duration := flags.Duration("duration", 2*time.Second, "how long each stream runs")
	inside := flags.Bool("inside", false, "")
	if err := flags.MarkHidden("inside"); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *rounds < 1 || *connects < 1 || *duration <= 0 {
			return usagef("--rounds, --connects and --duration: want more than 0")
		}
		if runtime.GOOS != "linux" || os.Getuid() != 0 {
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), "skipped: the section \"names\", which takes root on Linux")
			return err
		}
		if !*inside {
			return inNamespace(cmd.Context(), cmd, append(os.Args[1:], "--inside")...)
		}
		if err := intercept.LoopbackUp(); err != nil {
			return err
		}
		var found namesBench
		err := withFleet(cmd.Context(), cmd.ErrOrStderr(), func(f *fleet, dir, server string) error {
			return found.measure(f, dir, server, *rounds, *connects, *duration)
		})
		if err != nil {
			return err
		}
		return found.print(cmd)
	}
	return cmd
}

// namesBench is what intercepting was found to cost.
type namesBench struct{ figures []namesFigure }

// namesFigure is one number measured in two ways: the medians of the rounds.
type namesFigure struct {
	Name        string  `json:"name"`
	Unit        string  `json:"unit"`
	Intercepted float64 `json:"intercepted"`
	Beside      float64 `json:"beside"`
	What        string  `json:"what"` // what it is beside
}

func (b *namesBench) measure(f *fleet, dir, server string, rounds, connects int, duration time.Duration) error {
	n, client, err := f.network(dir, server, shortWay())
	if err != nil {
		return err
	}
	defer client.Close()
	start, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	t, err := n.startTunneler(start, n.path("client.json"), "--dns", "127.0.0.1:0", "--intercept")
	if err != nil {
		return err
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, t.dns)
	}}
	byName := func(ctx context.Context) (net.Conn, error) {
		found, err := resolver.LookupNetIP(ctx, "ip4", shortWay().name()+".")
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(found[0].Unmap().String(), "80"))
	}
	bySDK := func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, perfName) }
	latency := func(dial perf.Dial) (float64, error) {
		got, err := perf.Connect(f.ctx, dial, 1, perf.Bound{Count: connects})
		return got.Latency.P50, err
	}
	up := func(dial perf.Dial) (float64, error) {
		got, err := perf.Push(f.ctx, dial, perf.Load{Up: 1, Duration: duration})
		if err != nil {
			return 0, err
		}
		return got.Up.Gbits, nil
	}
	down := func(dial perf.Dial) (float64, error) {
		got, err := perf.Push(f.ctx, dial, perf.Load{Down: 1, Duration: duration})
		if err != nil {
			return 0, err
		}
		return got.Down.Gbits, nil
	}
	for _, m := range []struct {
		name, unit string
		beside     perf.Dial
		what       string
		measure    func(perf.Dial) (float64, error)
	}{
		{"connect by name + first byte p50", "ms", bySDK, "SDK", latency},
		{"1 stream up", "Gbit/s", dialTCP(t.listen[perfName]), "--listen", up},
		{"1 stream down", "Gbit/s", dialTCP(t.listen[perfName]), "--listen", down},
	} {
		var values [2][]float64
		for round := range rounds {
			for k := range 2 {
				side := (round + k) % 2 // each begins in turn
				v, err := m.measure([]perf.Dial{byName, m.beside}[side])
				if err != nil {
					return fmt.Errorf("%s: %w", m.name, err)
				}
				values[side] = append(values[side], v)
			}
		}
		b.figures = append(b.figures, namesFigure{m.name, m.unit, middle(values[0]), middle(values[1]), m.what})
	}
	return nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (b *namesBench) print(cmd *cobra.Command) error {
	number := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	return printList(cmd, b.figures, []column[namesFigure]{
		{"NAMES", func(f namesFigure) string { return f.Name }},
		{"UNIT", func(f namesFigure) string { return f.Unit }},
		{"INTERCEPTED", func(f namesFigure) string { return number(f.Intercepted) }},
		{"BESIDE", func(f namesFigure) string { return f.What + " " + number(f.Beside) }},
		{"RATIO", func(f namesFigure) string { return fmt.Sprintf("%.2f", f.Intercepted/f.Beside) }},
	})
}
