// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const perfBenchHelp = `Measure a network beside a yardstick, in turns, round by round:

  ginnel   program - tunneler's proxy - edge router - link - egress router - server
  relay    program - relay - relay - relay - server: three plain processes, TLS between
           them with certificates of the same kind, 64 KiB buffers

In section "data" all connections resume the TLS session of an earlier one. Section
"dial" measures new connections that do, and with a second tunneler such that do not;
the relays shake hands in full on both hops for each connection. "without a proxy" is
a dial of this program's own by the SDK. Section "far" is one stream over a link of 50 ms
and 200 Mbit/s, which a process of its own plays: between the routers of another network,
and, beside it, between program and server with nothing else.

All run on this machine, in processes of their own, as they come. Shown are the medians of the
rounds, and the median of each round's ratio: above 1 is more than the relay's,
which is good for throughput and bad for times. CPU time and memory are those of
all processes between program and server, the controller included.`

// newPerfBenchCmd gives ginnel perf bench, which make bench calls.
func newPerfBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a network on this machine beside a two-hop TLS relay",
		Long:  perfBenchHelp,
		Args:  cobra.NoArgs,
	}
	var plan perf.Plan
	flags := cmd.Flags()
	flags.StringSliceVar(&plan.Sections, "sections", perf.Sections(), "what is measured")
	flags.IntVar(&plan.Rounds, "rounds", 3, "how often everything is measured")
	flags.DurationVar(&plan.Duration, "duration", 2*time.Second, "how long each measurement takes")
	flags.IntVar(&plan.Streams, "streams", 8, "connections of the measurements with several")
	flags.IntVar(&plan.Connects, "connects", 200, "connections of the measurement of connect latency")
	flags.IntVar(&plan.InFlight, "in-flight", 32, "connections at the same time of the measurement of connection rate")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := plan.Check(); err != nil {
			return usageError{err}
		}
		live := liveOf(cmd)
		plan.Tell = func(round int, side, what string) {
			live.say(fmt.Sprintf("round %d of %d: %s: %s", round, plan.Rounds, side, what))
		}
		found, err := bench(cmd.Context(), cmd.ErrOrStderr(), plan)
		live.clear()
		if err != nil {
			return err
		}
		if wantJSON(cmd) {
			return printJSON(cmd, found)
		}
		return printBench(cmd, found, plan)
	}
	return cmd
}

// bench runs server, relays and network as processes of this program and compares.
func bench(ctx context.Context, stderr io.Writer, plan perf.Plan) (found perf.Comparison, err error) {
	err = withFleet(ctx, stderr, func(f *fleet, dir, server string) error {
		relay, err := f.relays(dir, server)
		if err != nil {
			return err
		}
		network, direct, err := f.network(dir, server)
		if err != nil {
			return err
		}
		defer direct.Close()
		if slices.Contains(plan.Sections, perf.Far) {
			if network.Far, err = f.far(filepath.Join(dir, "far"), server); err != nil {
				return err
			}
			plain, err := f.shaper(server)
			if err != nil {
				return err
			}
			relay.Far = dialTCP(plain)
		}
		found, err = perf.Compare(ctx, network, relay, plan)
		return err
	})
	return found, err
}

// withFleet does what is to be done with processes of this program, in a
// directory of their own, one of them a server; then it ends them.
func withFleet(ctx context.Context, stderr io.Writer, do func(f *fleet, dir, server string) error) (err error) {
	dir, err := os.MkdirTemp("", "ginnel-perf-*")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	f := fleet{ctx: ctx, log: log}
	defer func() {
		err = errors.Join(err, f.stop())
		if err != nil && ctx.Err() == nil {
			showEnd(stderr, log)
		}
		err = errors.Join(err, log.Close(), os.RemoveAll(dir))
	}()
	if f.program, err = os.Executable(); err != nil {
		return err
	}
	server, _, err := f.start("perf", "server", "--json")
	if err != nil {
		return err
	}
	return do(&f, dir, server.Address)
}

// showEnd writes the end of what the processes had to say.
func showEnd(stderr io.Writer, log *os.File) {
	const most = 4 << 10
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	_, _ = io.Copy(stderr, io.NewSectionReader(log, max(0, size-most), most))
}

// side gives the network whose way in is an address.
func side(name, address string, processes []*perf.Process) perf.Side {
	s := perf.Side{Name: name, Dial: dialTCP(address), Usage: perf.UsageOf(processes...)}
	if _, err := s.Usage(); err != nil {
		s.Usage = nil // not on this system
	}
	return s
}

// fleet is the processes of a bench.
type fleet struct {
	ctx     context.Context // of all processes
	log     *os.File        // what they say on standard error
	program string
	vitals  string // directory where each process keeps its own, by its name; empty: none does
	running []*perf.Process
}

// launch starts a process of this program.
func (f *fleet) launch(args ...string) (*perf.Process, error) {
	child := []string{"perf", "child"}
	if f.vitals != "" {
		child = append(child, vitalsFlag+filepath.Join(f.vitals, fmt.Sprintf("%02d-%s", len(f.running), args[0])))
	}
	p, err := perf.Start(f.ctx, f.log, f.program, append(child, args...)...)
	if err != nil {
		return nil, err
	}
	f.running = append(f.running, p)
	return p, nil
}

// start starts a process that says when it serves.
func (f *fleet) start(args ...string) (perf.Ready, *perf.Process, error) {
	p, err := f.launch(args...)
	if err != nil {
		return perf.Ready{}, nil, err
	}
	ready, err := p.Ready()
	return ready, p, err
}

// stop ends all processes at once.
func (f *fleet) stop() error {
	problems := make([]error, len(f.running))
	var stopping sync.WaitGroup
	for i, p := range f.running {
		stopping.Go(func() {
			if err := p.Stop(); err != nil && f.ctx.Err() == nil {
				problems[i] = fmt.Errorf("process of the bench: %w", err)
			}
		})
	}
	stopping.Wait()
	return errors.Join(problems...)
}

// relays starts three relays with certificates of a network of their own, from
// the far end.
func (f *fleet) relays(dir, server string) (perf.Side, error) {
	ca, err := pki.NewCA("relays", time.Now())
	if err != nil {
		return perf.Side{}, err
	}
	var chain []*perf.Process
	next := server
	for _, hop := range []struct{ name, secure string }{{"c", "in"}, {"b", "in,out"}, {"a", "out"}} {
		own, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: hop.name})
		if err != nil {
			return perf.Side{}, err
		}
		home := filepath.Join(dir, "relay-"+hop.name)
		if err := pki.SaveCredential(home, own); err != nil {
			return perf.Side{}, err
		}
		ready, p, err := f.start("perf", "relay", "--json", "--dir", home, "--next", next, "--tls", hop.secure)
		if err != nil {
			return perf.Side{}, err
		}
		chain = append(chain, p)
		next = ready.Address
	}
	return side("relay", next, chain), nil
}

// newPerfRelayCmd gives one relay of the yardstick; bench starts it.
func newPerfRelayCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "relay --dir DIR --next HOST:PORT",
		Short:  "A plain relay that a network is measured against",
		Args:   cobra.NoArgs,
		Hidden: true,
	}
	flags := cmd.Flags()
	listen := flags.String("listen", "127.0.0.1:0", "HOST:PORT")
	dir := flags.String("dir", "", "directory of a router's key and certificates")
	next := flags.String("next", "", "HOST:PORT of the next relay or of the server")
	secure := flags.StringSlice("tls", nil, "where TLS is spoken: in, out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		own, err := pki.LoadCredential(*dir)
		if err != nil {
			return err
		}
		relay, err := perfRelay(pki.NewHolder(own), *next, *secure)
		if err != nil {
			return err
		}
		return servePerf(cmd.Context(), cmd, *listen, relay.Serve)
	}
	return cmd
}

func perfRelay(own *pki.Holder, next string, secure []string) (perf.Relay, error) {
	r := perf.Relay{Next: next}
	for _, where := range secure {
		switch where {
		case "in":
			r.In = pki.ServerConfig(own, time.Now, wire.ALPNLink)
		case "out":
			r.Out = pki.ClientConfig(own, time.Now, ginnel.Peer{Role: ginnel.RoleRouter}, wire.ALPNLink)
		default:
			return perf.Relay{}, usagef("--tls %q: want in, out or both", where)
		}
	}
	return r, nil
}

// benchTitle names a figure for people.
func benchTitle(name string, plan perf.Plan) string {
	many, inFlight := fmt.Sprintf("%d streams", plan.Streams), fmt.Sprintf(", %d in flight", plan.InFlight)
	const full, direct = ", full handshakes", ", without a proxy"
	titles := map[string]string{
		perf.OneUp: "1 stream up", perf.OneDown: "1 stream down", perf.ManyUp: many + " up", perf.ManyDown: many + " down",
		perf.CPUOne: "CPU time, 1 stream up", perf.CPUMany: "CPU time, " + many + " up",
		perf.LeastUp: "slowest of " + many + " up", perf.LeastDown: "slowest of " + many + " down",
		perf.MemoryMany: "memory, " + many + " up",
		perf.TripP50:    "one-byte round trip p50", perf.TripP99: "one-byte round trip p99",
		perf.LoadedP50: "round trip beside a stream p50", perf.LoadedP99: "round trip beside a stream p99",
		perf.ConnectP50: "connect + first byte p50", perf.ConnectP99: "connect + first byte p99",
		perf.ConnectP50Full: "connect + first byte p50" + full, perf.ConnectP99Full: "connect + first byte p99" + full,
		perf.DirectP50: "connect + first byte p50" + direct, perf.DirectP99: "connect + first byte p99" + direct,
		perf.PerSecond: "connections" + inFlight, perf.PerSecondFull: "connections" + inFlight + full,
		perf.CPUConnect: "CPU time of each", perf.CPUConnectFull: "CPU time of each" + full,
		perf.FarUp: fmt.Sprintf("1 stream up, %s, beside TCP", perf.FarTrip), perf.FarDown: fmt.Sprintf("1 stream down, %s, beside TCP", perf.FarTrip),
		perf.Resumed: "handshakes resumed", perf.ResumedFull: "handshakes resumed" + full,
	}
	return titles[name]
}

// printBench writes a table for each section, and what failed, if anything did.
func printBench(cmd *cobra.Command, found perf.Comparison, plan perf.Plan) error {
	number := func(v float64) string {
		if v >= 100 {
			return fmt.Sprintf("%.0f", v)
		}
		return fmt.Sprintf("%.3g", v)
	}
	for _, section := range plan.Sections {
		figures := slices.DeleteFunc(slices.Clone(found.Figures), func(f perf.Figure) bool { return f.Section != section })
		err := printList(cmd, figures, []column[perf.Figure]{
			{strings.ToUpper(section), func(f perf.Figure) string { return benchTitle(f.Name, plan) }},
			{"UNIT", func(f perf.Figure) string { return f.Unit }},
			{strings.ToUpper(found.A), func(f perf.Figure) string { return number(f.A) }},
			{strings.ToUpper(found.B), func(f perf.Figure) string { return number(f.B) }},
			{"RATIO", func(f perf.Figure) string {
				if f.Ratio == 0 {
					return ""
				}
				return fmt.Sprintf("%.2f", f.Ratio)
			}},
		})
		if err != nil {
			return err
		}
		if err := writeText(cmd.OutOrStdout(), "\n"); err != nil {
			return err
		}
	}
	for _, f := range found.Failures {
		line := fmt.Sprintf("%s: %s: %d connections failed, the first: %s\n", f.Side, f.Measure, f.Count, f.First)
		if err := writeText(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}
