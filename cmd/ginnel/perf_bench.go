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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/perf"
)

const perfBenchHelp = `Measure a network beside others, in turns, round by round:

  ginnel   program - tunneler's proxy - edge router - link - egress router - server
  relay    program - relay - relay - relay - server: the yardstick, three plain processes,
           TLS between them with certificates of the same kind, 64 KiB buffers
  tcp      program - server
  ssh      program - ssh -L - sshd - server
  stunnel  program - stunnel - stunnel - server; stunnel2 has one more, for a second hop
  haproxy  program - haproxy - haproxy - server, TLS between them

The last three run where their programs are installed, with keys made for the run.

In section "data" all connections resume the TLS session of an earlier one. Section
"dial" measures new connections that do, and with a second tunneler such that do not;
the relays shake hands in full on both hops for each connection. "without a proxy" is
a dial of this program's own by the SDK. Section "far" is one stream over a link of 50 ms
and 200 Mbit/s, which a process of its own plays: between two routers of the network,
and, for tcp, between program and server with nothing else. Section "alone" is of the network
by itself: memory of idle processes and of each of --circuits idle circuits, and how soon
"ginnel demo" has its first byte; section "faults", how soon a router that was halted or
killed is not dialed over any more. Then follow the targets, and which of them are met.

All run on this machine, in processes of their own, as they come. Shown are the medians of the
rounds, and in brackets the median of the rounds' ratios, ginnel's to the peer's: above 1
is more than the peer's, which is good for throughput and bad for times. CPU time and memory are
those of all processes between program and server, the controller included.`

// newPerfBenchCmd gives ginnel perf bench, which make bench calls.
func newPerfBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a network on this machine beside a two-hop TLS relay and others",
		Long:  perfBenchHelp,
		Args:  cobra.NoArgs,
	}
	var b perfBench
	flags := cmd.Flags()
	flags.StringSliceVar(&b.plan.Sections, "sections", perf.Sections(), "what is measured")
	flags.StringSliceVar(&b.peers, "peers", peerNames(), "what the network is measured beside")
	flags.IntVar(&b.plan.Rounds, "rounds", 3, "how often everything is measured")
	flags.DurationVar(&b.plan.Duration, "duration", time.Second, "how long each measurement takes")
	flags.IntVar(&b.plan.Streams, "streams", 8, "connections of the measurements with many")
	flags.IntVar(&b.plan.Connects, "connects", 200, "connections of the measurement of connect latency")
	flags.IntVar(&b.plan.InFlight, "in-flight", 32, "connections at the same time of the measurement of connection rate")
	flags.IntVar(&b.circuits, "circuits", maxIdle, "idle circuits whose memory is measured")
	flags.StringVar(&b.chart, "chart", "", "write a chart to this file (SVG)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := b.check(); err != nil {
			return usageError{err}
		}
		live := liveOf(cmd)
		b.plan.Tell = func(round int, side, what string) {
			live.say(fmt.Sprintf("round %d of %d: %s: %s", round, b.plan.Rounds, side, what))
		}
		found, err := b.run(cmd.Context(), cmd.ErrOrStderr())
		live.clear()
		if err != nil {
			return err
		}
		return errors.Join(printBench(cmd, found, b.plan), b.draw(cmd.ErrOrStderr(), found))
	}
	return cmd
}

// perfBench is what a bench is to measure.
type perfBench struct {
	plan     perf.Plan
	peers    []string
	circuits int    // idle ones
	chart    string // file; empty: none
}

func (b perfBench) check() error {
	for _, name := range b.peers {
		if !slices.Contains(peerNames(), name) {
			return fmt.Errorf("peer %q: want some of %s", name, strings.Join(peerNames(), ", "))
		}
	}
	if b.circuits < 1 || b.circuits > maxIdle {
		return fmt.Errorf("%d idle circuits: want 1 to %d", b.circuits, maxIdle)
	}
	return b.plan.Check()
}

// run measures what is wanted.
func (b perfBench) run(ctx context.Context, stderr io.Writer) (found perf.Comparison, err error) {
	has := func(sections ...string) bool {
		return slices.ContainsFunc(b.plan.Sections, func(s string) bool { return slices.Contains(sections, s) })
	}
	found = perf.Comparison{Sides: []string{perfProduct}, Figures: []perf.Figure{}, Failures: []perf.Failure{}}
	if has(perf.Data, perf.Dialing, perf.Far) {
		found, err = b.compare(ctx, stderr)
	}
	if err == nil && has(perf.Alone, perf.Faults) {
		b.plan.Tell(b.plan.Rounds, perfProduct, "alone")
		err = b.alone(ctx, stderr, &found)
	}
	return found, err
}

// compare makes server, network and peers of processes and compares. It tells stderr
// which peers it goes without.
func (b perfBench) compare(ctx context.Context, stderr io.Writer) (found perf.Comparison, err error) {
	err = withFleet(ctx, stderr, func(f *fleet, dir, server string) error {
		ways := []benchWay{shortWay(), longerWay()}
		if f.far = slices.Contains(b.plan.Sections, perf.Far); f.far {
			ways = append(ways, farWay())
		}
		network, client, err := f.network(dir, server, ways...)
		if err != nil {
			return err
		}
		defer client.Close()
		defer network.client.Close()
		sides := []perf.Side{network.side(client)}
		for _, p := range peers() {
			if !slices.Contains(b.peers, p.name) {
				continue
			}
			s, err := p.begin(f, filepath.Join(dir, p.name), server)
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				fmt.Fprintf(stderr, "skipped: %s: %v\n", p.name, err)
				continue
			}
			s.Name = p.name
			sides = append(sides, s)
		}
		found, err = perf.Compare(ctx, sides, b.plan)
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
	server, _, err := f.start("perf", "server", "--json", "--connections", strconv.Itoa(maxIdle+perf.MaxInFlight))
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

// side gives the network whose way in is an address. It has no name yet.
func side(address string, processes []*perf.Process) perf.Side {
	s := perf.Side{Dial: dialTCP(address), Usage: perf.UsageOf(processes...)}
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
	far     bool   // a far link is measured
	running []*perf.Process
	undo    []func() error // what else is to be done once they have ended
	env     []string       // a program and its arguments before ours, or none
}

// launch starts a process of this program.
func (f *fleet) launch(args ...string) (*perf.Process, error) {
	command := slices.Concat(f.env, []string{f.program, "perf", "child"})
	if f.vitals != "" {
		command = append(command, vitalsFlag+filepath.Join(f.vitals, fmt.Sprintf("%02d-%s", len(f.running), args[0])))
	}
	command = append(command, args...)
	p, err := perf.Start(f.ctx, f.log, command[0], command[1:]...)
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

// stop ends all processes at once, and undoes what was done for them.
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
	for _, undo := range f.undo {
		problems = append(problems, undo())
	}
	return errors.Join(problems...)
}
