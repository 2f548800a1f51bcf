// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/fleet"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/sdk"
)

const perfHelp = `Measure a network with a load of your own: a server at the far end, a client at
the near one, and what you want to know between them.

  ginnel perf server --listen 127.0.0.1:7000        behind a terminator tcp:127.0.0.1:7000
  ginnel perf client --address 127.0.0.1:8081       through a tunneler's proxy

  ginnel perf server --service perf --identity bob.json
  ginnel perf client --service perf --identity alice.json

  ginnel perf bench      a network of its own beside a chain of TLS relays
  ginnel perf soak       a network of its own for a long time: does anything grow?`

func newPerfCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "perf", Short: "Measure throughput, latency and connection rate", Long: perfHelp}
	cmd.AddCommand(newPerfServerCmd(), newPerfClientCmd(), newPerfBenchCmd(), newPerfSoakCmd(), newPerfRelayCmd(), newPerfShaperCmd(), newPerfChildCmd())
	return cmd
}

func newPerfServerCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "server [--listen HOST:PORT | --service NAME --identity FILE]",
		Short:   "Answer the clients that measure, until interrupted",
		Example: "  ginnel perf server --listen 127.0.0.1:7000",
	}
	listen := cmd.Flags().String("listen", "127.0.0.1:0", "`HOST:PORT`; anyone who reaches it can make it busy")
	service := cmd.Flags().String("service", "", "`NAME` of the service, in place of an address")
	udp := cmd.Flags().Bool("udp", false, "answer datagrams, not streams")
	most := cmd.Flags().Int("connections", 1024, "how many are served at a time; one more is closed at once")
	var identity string
	identityFlag(cmd, &identity)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if *most < 1 {
			return usagef("--connections %d: want at least 1", *most)
		}
		server := perf.Server{Most: *most}
		switch {
		case *service == "" && *udp:
			return servePerfPackets(ctx, cmd, *listen)
		case *service == "":
			return servePerf(ctx, cmd, *listen, server.Serve)
		}
		if cmd.Flags().Changed("listen") {
			return usagef("give either --listen or --service")
		}
		client, err := openClient(cmd, identity, stderrLog(cmd, slog.LevelWarn))
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }()
		if err := mayHost(ctx, client, ginnel.ServiceID(*service)); err != nil {
			return err
		}
		opts := sdk.ListenOptions{Backlog: perf.MaxInFlight}
		if *udp {
			return servePerfFlows(ctx, cmd, client, *service, opts)
		}
		listener, err := client.Listen(*service, opts)
		if err != nil {
			return err
		}
		if err := saidServing(cmd, *service); err != nil {
			return err
		}
		return server.Serve(ctx, listener)
	}
	return cmd
}

func saidServing(cmd *cobra.Command, service string) error {
	return said(cmd, struct {
		Service string `json:"service"`
	}{service}, "perf server of service "+service)
}

// servePerf listens, says where, and serves.
func servePerf(ctx context.Context, cmd *cobra.Command, listen string, serve func(context.Context, net.Listener) error) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	if err := said(cmd, perf.Ready{Address: address}, "listening on "+address); err != nil {
		return err
	}
	return serve(ctx, listener)
}

// newPerfChildCmd runs another command of this program until standard input
// ends: the processes of a bench must not outlive it.
func newPerfChildCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:                "child COMMAND...",
		Short:              "Run a command until standard input ends",
		Hidden:             true,
		DisableFlagParsing: true,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		in := cmd.InOrStdin()
		go func() {
			_, _ = io.Copy(io.Discard, in)
			cancel()
		}()
		if file, ok := strings.CutPrefix(args[0], fleet.VitalsFlag); ok {
			args = args[1:]
			keep, err := os.Create(file)
			if err != nil {
				return err
			}
			defer keep.Close()
			var keeping sync.WaitGroup
			defer keeping.Wait()
			defer cancel()
			keeping.Go(func() { _ = perf.KeepVitals(ctx, keep, fleet.VitalsEvery) }) // a course with a hole is told
		}
		root := newRootCmd()
		root.SetArgs(args)
		root.SetIn(strings.NewReader(""))
		root.SetOut(cmd.OutOrStdout())
		root.SetErr(cmd.ErrOrStderr())
		err := root.ExecuteContext(ctx)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	return cmd
}

// perfKinds is what a client can measure, in the order of measurement.
func perfKinds() []string { return []string{"up", "down", "both", "echo", "connect", "rate"} }

const perfClientHelp = `Measure, against a perf server that an address or a service leads to:

  up, down, both   throughput of --streams connections, counted where bytes arrive
  echo             round trips of --size bytes on one connection
  connect          new connections one at a time, each to the server's first byte
  rate             new connections, --in-flight at a time

With --udp, against a perf server --udp that a udp: address of a service leads to:

  datagrams        those that arrive of --rate a second, of --size bytes, and the loss
  echo             round trips of one at a time; one that is not back in a second is lost`

func newPerfClientCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "client (--address HOST:PORT | --service NAME --identity FILE)",
		Short:   "Measure the way to a perf server",
		Long:    perfClientHelp,
		Example: "  ginnel perf client --address 127.0.0.1:8081 --only up,connect --streams 8",
	}
	var c perfClient
	flags := cmd.Flags()
	address := flags.String("address", "", "`HOST:PORT` of a perf server, or of a proxy that leads to one")
	service := cmd.Flags().String("service", "", "`NAME` of the service, in place of an address")
	var identity string
	identityFlag(cmd, &identity)
	spreadFlag(cmd)
	flags.BoolVar(&c.udp, "udp", false, "datagrams, not streams")
	only := flags.StringSlice("only", nil, "`KINDS` to measure, with commas between (default all)")
	flags.IntVar(&c.streams, "streams", 1, "connections of up, down and both, in each direction")
	flags.DurationVar(&c.duration, "duration", 3*time.Second, "how long each measurement takes")
	flags.IntVar(&c.size, "size", 0, "bytes of an echo, or of a datagram (default 1; 1200 with --udp)")
	flags.IntVar(&c.rate, "rate", 1000, "with --udp: datagrams a second, 0: as many as go")
	flags.IntVar(&c.inFlight, "in-flight", 32, "connections of rate at the same time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kinds := perfKinds()
		c.size = cmp.Or(c.size, 1)
		if c.udp {
			kinds = packetKinds()
			if !flags.Changed("size") {
				c.size = 1200
			}
		}
		for _, kind := range *only {
			if !slices.Contains(kinds, kind) {
				return withHint(usagef("--only %q", kind), "one of "+strings.Join(kinds, ", "))
			}
		}
		if len(*only) > 0 {
			kinds = *only
		}
		switch {
		case (*address == "") == (*service == ""):
			return usagef("give either --address or --service")
		case c.check() != nil:
			return usageError{c.check()}
		case *service != "":
			client, err := openClient(cmd, identity, stderrLog(cmd, slog.LevelWarn))
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			c.dial = func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, *service) }
			if c.udp {
				c.dial = dialPackets(client, *service)
			}
		case c.udp:
			c.dial = perf.DialUDP(*address)
		default:
			c.dial = perf.DialTCP(*address)
		}
		return c.run(cmd, kinds)
	}
	return cmd
}

// perfClient is what a client is to measure.
type perfClient struct {
	dial     perf.Dial
	udp      bool
	streams  int
	duration time.Duration
	size     int
	rate     int
	inFlight int
}

func (c perfClient) check() error {
	const streams = perf.MaxStreams / 2 // both needs them twice
	switch {
	case c.streams < 1 || c.streams > streams:
		return fmt.Errorf("--streams %d: want 1 to %d", c.streams, streams)
	case c.duration <= 0 || c.duration > perf.MaxDuration:
		return fmt.Errorf("--duration %s: want more than 0 and at most %s", c.duration, perf.MaxDuration)
	case c.udp && (c.size < perf.LeastDatagram || c.size > perf.MostDatagram):
		return fmt.Errorf("--size %d: want %d to %d", c.size, perf.LeastDatagram, perf.MostDatagram)
	case c.rate < 0:
		return fmt.Errorf("--rate %d: want 0 or more", c.rate)
	case !c.udp && (c.size < 1 || c.size > perf.MaxEcho):
		return fmt.Errorf("--size %d: want 1 to %d", c.size, perf.MaxEcho)
	case c.inFlight < 1 || c.inFlight > perf.MaxInFlight:
		return fmt.Errorf("--in-flight %d: want 1 to %d", c.inFlight, perf.MaxInFlight)
	}
	return nil
}

// perfResult is one measurement; what does not belong to it is nil.
type perfResult struct {
	Measure     string             `json:"measure"`
	Up          *perf.Flow         `json:"up,omitempty"`
	Down        *perf.Flow         `json:"down,omitempty"`
	Trip        *perf.Distribution `json:"trip,omitempty"`
	Connections *perf.Connections  `json:"connections,omitempty"`
	Datagrams   *perf.DatagramFlow `json:"datagrams,omitempty"`
}

func (c perfClient) run(cmd *cobra.Command, kinds []string) error {
	var results []perfResult
	for _, kind := range kinds {
		measure := c.measure
		if c.udp {
			measure = c.measurePackets
		}
		r, err := measure(cmd.Context(), kind, liveOf(cmd))
		if err != nil {
			return fmt.Errorf("measure %s: %w", kind, err)
		}
		if wantJSON(cmd) {
			if err := printJSON(cmd, r); err != nil {
				return err
			}
		}
		results = append(results, r)
	}
	if wantJSON(cmd) {
		return nil
	}
	columns := perfColumns()
	if len(results) > 0 && results[0].Datagrams != nil {
		columns = packetColumns()
	}
	return printList(cmd, results, columns)
}

func (c perfClient) measure(ctx context.Context, kind string, live live) (perfResult, error) {
	defer live.clear()
	live.say(kind)
	r := perfResult{Measure: kind}
	bound := perf.Bound{Duration: c.duration}
	switch kind {
	case "echo":
		trip, err := perf.Echo(ctx, c.dial, c.size, bound)
		r.Trip = &trip
		return r, err
	case "connect", "rate":
		inFlight := 1
		if kind == "rate" {
			inFlight = c.inFlight
		}
		made, err := perf.Connect(ctx, c.dial, inFlight, bound)
		r.Connections = &made
		return r, err
	}
	load := perf.Load{Duration: c.duration}
	if kind != "down" {
		load.Up = c.streams
	}
	if kind != "up" {
		load.Down = c.streams
	}
	if live.w != nil {
		load.Live = func(now perf.Rate) {
			live.say(fmt.Sprintf("%s: up %.2f, down %.2f Gbit/s", kind, now.Up/1e9, now.Down/1e9))
		}
	}
	t, err := perf.Push(ctx, c.dial, load)
	r.Up, r.Down = t.Up, t.Down
	return r, err
}

func perfColumns() []column[perfResult] {
	flow := func(f *perf.Flow) string {
		if f == nil {
			return ""
		}
		return fmt.Sprintf("%.2f", f.Gbits)
	}
	latency := func(of func(perf.Distribution) float64) func(perfResult) string {
		return func(r perfResult) string {
			switch {
			case r.Trip != nil:
				return fmt.Sprintf("%.3f", of(*r.Trip))
			case r.Connections != nil:
				return fmt.Sprintf("%.3f", of(r.Connections.Latency))
			}
			return ""
		}
	}
	return []column[perfResult]{
		{"MEASURE", func(r perfResult) string { return r.Measure }},
		{"UP Gbit/s", func(r perfResult) string { return flow(r.Up) }},
		{"DOWN Gbit/s", func(r perfResult) string { return flow(r.Down) }},
		{"p50 ms", latency(func(d perf.Distribution) float64 { return d.P50 })},
		{"p99 ms", latency(func(d perf.Distribution) float64 { return d.P99 })},
		{"CONNECTIONS/s", func(r perfResult) string {
			if r.Connections == nil {
				return ""
			}
			return fmt.Sprintf("%.0f", r.Connections.PerSecond)
		}},
	}
}

// live is one line on a terminal that is written over; without a terminal, nothing.
type live struct{ w io.Writer }

func liveOf(cmd *cobra.Command) live {
	if w := cmd.ErrOrStderr(); isTerminal(w) && !wantJSON(cmd) {
		return live{w}
	}
	return live{}
}

// say replaces the line. EL and CR are of ECMA-48, sections 8.3.41 and 8.3.15.
func (l live) say(text string) {
	if l.w != nil {
		fmt.Fprintf(l.w, "\r\x1b[K%s", visible(text))
	}
}

func (l live) clear() { l.say("") }
