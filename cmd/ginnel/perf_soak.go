// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
)

const perfSoakHelp = `Run a network of its own, each part a process, under a mixed load for a long time,
and look whether anything grows: live heap, resident memory, goroutines, descriptors
of each process. The mean of the last third of the time must not be above that of the
second by more than a tenth and some slack; the first is for getting warm.

The load is bulk data and echoes, each byte compared, short connections, to a host
that is a router and one that is a tunneler, and short flows of datagrams. It takes
about a fifth of one core.

  ginnel perf soak --duration 30m --plot soak.svg`

const (
	// vitalsFlag makes perf child keep its vitals in a file.
	vitalsFlag   = "--vitals="
	vitalsEvery  = 5 * time.Second
	soakHosted   = "hosted"
	soakFlows    = "flows"
	soakHostName = "host"
	leastSoak    = time.Minute
)

func newPerfSoakCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a network under a mixed load for long, and see whether anything grows",
		Long:  perfSoakHelp,
		Args:  cobra.NoArgs,
	}
	length := cmd.Flags().Duration("duration", 30*time.Minute, "how long; at least 1m")
	plot := cmd.Flags().String("plot", "", "`FILE` for a diagram of it, SVG")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *length < leastSoak {
			return usagef("--duration %s: at least %s is needed to tell anything", *length, leastSoak)
		}
		if _, err := perf.OwnVitals(); err != nil { // before the wait, not after it
			return fmt.Errorf("a soak needs Linux: %w", err)
		}
		var done perf.Soaked
		var records []perf.Record
		err := withFleet(cmd.Context(), cmd.ErrOrStderr(), func(f *fleet, dir, server string) (err error) {
			done, records, err = f.soak(dir, server, *length)
			return err
		})
		if err != nil {
			return err
		}
		if *plot != "" {
			if err := plotSoak(*plot, *length, records); err != nil {
				return err
			}
		}
		return printSoak(cmd, done, records)
	}
	return cmd
}

// soak makes the network, puts the load on it, and gives what came of that.
func (f *fleet) soak(dir, server string, length time.Duration) (done perf.Soaked, records []perf.Record, err error) {
	flows, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return done, nil, err
	}
	defer flows.Close()
	go func() { _ = new(perf.DatagramServer).Serve(f.ctx, flows) }() // until it is closed
	f.vitals = dir
	n := newBenchNetwork(f, dir, shortWay())
	load, err := n.startSoak(server, flows.LocalAddr().String())
	if err != nil {
		return done, nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, length)
	defer cancel()
	began := time.Now()
	if done, err = load.Run(ctx); err != nil {
		return done, nil, err
	}
	records, err = readRecords(dir, began)
	return done, records, err
}

// startSoak makes a network whose services are hosted by a router and by a
// tunneler, one of them for datagrams, and gives the ways through it.
func (n *benchNetwork) startSoak(server, flows string) (load perf.Soak, err error) {
	ctx, cancel := context.WithTimeout(n.fleet.ctx, time.Minute)
	defer cancel()
	if err := n.startController(ctx); err != nil {
		return load, err
	}
	defer n.client.Close()
	var through tunneler
	for _, step := range []func(context.Context) error{
		n.startRouters,
		func(ctx context.Context) error { return n.describe(ctx, server) },
		func(ctx context.Context) error { return n.describeSoak(ctx, flows) },
		n.await,
		func(ctx context.Context) error { return n.startHost(ctx, server) },
		func(ctx context.Context) error {
			_, file, err := n.enroll(ctx, perfMachine)
			if err == nil {
				through, err = n.startTunneler(ctx, file, "--listen", "127.0.0.1:0=hosted.internal:80", "--listen", "udp:127.0.0.1:0=flows.internal:9000")
			}
			return err
		},
	} {
		if err := step(ctx); err != nil {
			return load, err
		}
	}
	if len(through.more) != 2 {
		return load, fmt.Errorf("the tunneler listens at %q besides", through.more)
	}
	datagrams := strings.TrimPrefix(through.more[1], "udp:")
	load = perf.Soak{
		Ways: []perf.Dial{dialTCP(through.listen[perfName]), dialTCP(through.more[0])},
		Datagrams: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", datagrams)
		},
	}
	return load, until(ctx, "the way to the host", func() (bool, error) {
		_, err := perf.Connect(ctx, load.Ways[1], 1, perf.Bound{Count: 1})
		return err == nil, nil // until the host has bound
	})
}

// describeSoak adds what describe leaves out.
func (n *benchNetwork) describeSoak(ctx context.Context, flows string) error {
	for _, s := range []ginnel.Service{
		{ID: soakHosted, Intercept: &ginnel.Intercept{Addresses: []string{"hosted.internal"}, Ports: []string{"80"}, Protocols: []string{"tcp"}}},
		{
			ID: soakFlows, IdleTimeout: ginnel.Duration(5 * time.Second),
			Intercept: &ginnel.Intercept{Addresses: []string{"flows.internal"}, Ports: []string{"9000"}, Protocols: []string{"udp"}},
		},
	} {
		if _, err := n.client.Services().Create(ctx, s); err != nil {
			return err
		}
	}
	_, err := n.client.Terminators().Create(ctx, ginnel.Terminator{
		Service: soakFlows, Router: perfEgress, Address: ginnel.Address("udp:" + flows),
	})
	if err != nil {
		return err
	}
	for _, p := range []ginnel.Policy{
		{ID: "soak-dial", Kind: ginnel.DialPolicy, Identities: []string{"@" + perfMachine}, Services: []string{"@" + soakHosted, "@" + soakFlows}},
		{ID: "soak-bind", Kind: ginnel.BindPolicy, Identities: []string{"@" + soakHostName}, Services: []string{"@" + soakHosted}},
		{ID: "soak-edge", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + soakHostName}, Routers: []string{"@" + perfEgress}},
	} {
		if _, err := n.client.Policies().Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// startHost starts a tunneler that hosts.
func (n *benchNetwork) startHost(ctx context.Context, server string) error {
	_, file, err := n.enroll(ctx, soakHostName)
	if err != nil {
		return err
	}
	return n.launch(soakHostName, "tunnel", "run", "--identity", file, "--host", soakHosted+"=tcp:"+server)
}

// readRecords reads what the processes of a soak have kept since it began.
func readRecords(dir string, since time.Time) ([]perf.Record, error) {
	var records []perf.Record
	// In the order in which they were started.
	for i, p := range [][2]string{
		{"controller", "controller"}, {"edge router", "router"}, {"egress router", "router"}, {"host", "tunnel"}, {"tunneler", "tunnel"},
	} {
		name, command := p[0], p[1]
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%02d-%s", i+1, command))) // 0 is the server
		if err != nil {
			return nil, err
		}
		course, err := perf.ReadVitals(f)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for len(course) > 0 && course[0].At.Before(since) {
			course = course[1:]
		}
		records = append(records, perf.Record{Process: name, Course: course})
	}
	return records, nil
}

func plotSoak(file string, length time.Duration, records []perf.Record) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = perf.PlotSoak(f, fmt.Sprintf("%s of mixed load", length), records)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// soakResult is what perf soak prints.
type soakResult struct {
	perf.Soaked

	Cores    float64        `json:"cores"` // that all processes took together
	Verdicts []perf.Verdict `json:"verdicts"`
}

func printSoak(cmd *cobra.Command, done perf.Soaked, records []perf.Record) error {
	verdicts, err := perf.Judge(records)
	if err != nil {
		return err
	}
	result := soakResult{Soaked: done, Verdicts: verdicts}
	for _, r := range records {
		result.Cores += r.Busy()
	}
	if wantJSON(cmd) {
		err = printJSON(cmd, result)
	} else {
		err = writeSoak(cmd.OutOrStdout(), result)
	}
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		if !v.Flat {
			return fmt.Errorf("%s of %s grows: from %.1f to %.1f %s", v.Measure, v.Process, v.Second, v.Last, v.Unit)
		}
	}
	return nil
}

func writeSoak(w io.Writer, r soakResult) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d MB, %d connections, %d datagrams and %d lost; %.2f of a core\n\n%-14s %-12s %10s %10s\n",
		r.Bytes/1e6, r.Connections, r.Datagrams, r.Lost, r.Cores, "PROCESS", "MEASURE", "2ND THIRD", "LAST THIRD")
	for _, v := range r.Verdicts {
		fmt.Fprintf(&text, "%-14s %-12s %10.1f %10.1f %s\n", v.Process, v.Measure, v.Second, v.Last, v.Unit)
	}
	return writeText(w, text.String())
}
