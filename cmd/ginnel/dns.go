// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	mdns "github.com/miekg/dns"
	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/perf"
)

const dnsBenchHelp = `Measures the tunneler's resolver on this machine, over loopback UDP, beside a
bare server that sends every packet back as it is, in turns:

  names      questions for the addresses of services
  wildcard   for names below a wildcard that were not asked for before, each of
             which is on disk when it is answered
  nothing    for names in our zone that do not exist`

// dnsBench is what ginnel dns bench prints.
type dnsBench struct {
	Services  int            `json:"services"`
	InFlight  int            `json:"in_flight"`
	Questions []dnsQuestions `json:"questions"`
}

// dnsQuestions is how one kind of question was answered.
type dnsQuestions struct {
	Kind      string            `json:"kind"`
	PerSecond float64           `json:"per_second"`
	Ratio     float64           `json:"ratio_to_bare"` // of the bare server's rate
	Latency   perf.Distribution `json:"latency"`
}

func newDNSCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "dns", Short: "The resolver of the tunneler"}
	cmd.AddCommand(newDNSBenchCmd())
	return cmd
}

func newDNSBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how many questions a second the resolver answers",
		Long:  dnsBenchHelp,
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	duration := flags.Duration("duration", 2*time.Second, "how long each measurement takes")
	services := flags.Int("services", 10_000, "services with a name each")
	inFlight := flags.Int("in-flight", 32, "questions at a time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *duration <= 0 || *services < 1 || *inFlight < 1 {
			return usagef("--duration, --services and --in-flight must be more than 0")
		}
		live := liveOf(cmd)
		live.say(fmt.Sprintf("a resolver with %d names", *services))
		found, err := benchDNS(cmd.Context(), *services, *inFlight, *duration)
		live.clear()
		if err != nil {
			return err
		}
		return printFound(cmd, found)
	}
	return cmd
}

func (b dnsBench) text() string {
	var text strings.Builder
	for _, q := range b.Questions {
		fmt.Fprintf(&text, "%-9s %7.0f questions a second, %d in flight: p50 %.3f ms, p99 %.3f ms", q.Kind, q.PerSecond, b.InFlight, q.Latency.P50, q.Latency.P99)
		if q.Ratio > 0 {
			fmt.Fprintf(&text, "; %.2f of the bare server", q.Ratio)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// wildNames is how many names below the wildcard are asked for: more than are
// answered while a measurement takes, so that each is new.
const wildNames = 250_000

func benchDNS(ctx context.Context, services, inFlight int, duration time.Duration) (found dnsBench, err error) {
	dir, err := os.MkdirTemp("", "ginnel-dns-bench-")
	if err != nil {
		return dnsBench{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	resolver, err := dns.Open(dns.Config{
		Zones: []string{"internal"}, StateFile: filepath.Join(dir, "names.json"), Limits: dns.Limits{MaxAsked: wildNames},
	})
	if err != nil {
		return dnsBench{}, err
	}
	list := make([]dns.Service, services+1)
	names := make([]string, services)
	for i := range names {
		names[i] = fmt.Sprintf("s%05d.internal.", i)
		list[i] = dns.Service{
			ID:        ginnel.ServiceID(fmt.Sprintf("s%05d", i)),
			Intercept: ginnel.Intercept{Addresses: []string{names[i]}, Ports: []string{"80"}},
		}
	}
	list[services] = dns.Service{ID: "wild", Intercept: ginnel.Intercept{Addresses: []string{"*.wild.internal"}, Ports: []string{"80"}}}
	err = resolver.SetServices(ctx, list)
	if err != nil {
		return dnsBench{}, errors.Join(err, resolver.Close())
	}
	address, stop, err := serveLoopback(ctx, resolver)
	if err != nil {
		return dnsBench{}, errors.Join(err, resolver.Close())
	}
	found, err = askBoth(ctx, address, names, inFlight, duration)
	found.Services, found.InFlight = services, inFlight
	return found, errors.Join(err, stop(), resolver.Close())
}

// askBoth measures the resolver at address and the bare server.
func askBoth(ctx context.Context, address string, names []string, inFlight int, duration time.Duration) (found dnsBench, err error) {
	bare, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return dnsBench{}, err
	}
	defer func() { _ = bare.Close() }()
	go sendBack(bare)
	wild, nothing := make([]string, wildNames), make([]string, len(names))
	for i := range wild {
		wild[i] = fmt.Sprintf("w%d.wild.internal.", i)
	}
	for i := range nothing {
		nothing[i] = fmt.Sprintf("n%d.internal.", i)
	}
	bound := perf.Bound{Duration: duration}
	var yardstick float64
	for _, kind := range []struct {
		name, server string
		names        []string
	}{
		{"bare", bare.LocalAddr().String(), names},
		{"names", address, names},
		{"wildcard", address, wild},
		{"nothing", address, nothing},
	} {
		packets, err := queries(kind.names)
		if err != nil {
			return found, err
		}
		latency, rate, err := perf.Questions(ctx, kind.server, packets, inFlight, bound)
		if err != nil {
			return found, fmt.Errorf("%s: %w", kind.name, err)
		}
		q := dnsQuestions{Kind: kind.name, PerSecond: rate, Latency: latency}
		if kind.name == "bare" {
			yardstick = rate
		} else {
			q.Ratio = rate / yardstick
		}
		found.Questions = append(found.Questions, q)
	}
	return found, nil
}

// queries gives a question for the address of each name.
func queries(names []string) ([][]byte, error) {
	packets := make([][]byte, len(names))
	for i, name := range names {
		var err error
		if packets[i], err = new(mdns.Msg).SetQuestion(name, mdns.TypeA).Pack(); err != nil {
			return nil, err
		}
	}
	return packets, nil
}

// sendBack is the bare server. It ends when conn is closed.
func sendBack(conn net.PacketConn) {
	packet := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(packet)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(packet[:size], from)
	}
}

// serveLoopback serves resolver until stop is called.
func serveLoopback(ctx context.Context, resolver *dns.Resolver) (address string, stop func() error, err error) {
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", nil, err
	}
	streams, err := net.Listen("tcp", "127.0.0.1:0") // nobody asks there
	if err != nil {
		return "", nil, errors.Join(err, packets.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	end := make(chan error, 1)
	go func() { end <- resolver.Serve(ctx, packets, streams) }()
	return packets.LocalAddr().String(), func() error { cancel(); return <-end }, nil
}
