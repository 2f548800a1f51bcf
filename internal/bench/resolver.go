// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/perf"
)

// Resolver is how a resolver answers.
type Resolver struct {
	Services  int         `json:"services"`
	InFlight  int         `json:"in_flight"`
	Questions []Questions `json:"questions"`
}

// Questions is how one kind of question was answered.
type Questions struct {
	Kind      string            `json:"kind"`
	PerSecond float64           `json:"per_second"`
	Ratio     float64           `json:"ratio_to_bare"` // of the bare server's rate
	Latency   perf.Distribution `json:"latency"`
}

// wildNames is how many names below the wildcard are asked for: more than are
// answered while a measurement takes, so that each is new.
const wildNames = 250_000

// MeasureResolver asks a resolver with so many services and a bare server, inFlight
// questions at a time, each kind for the duration.
func MeasureResolver(ctx context.Context, services, inFlight int, duration time.Duration) (found Resolver, err error) {
	dir, err := os.MkdirTemp("", "ginnel-dns-bench-")
	if err != nil {
		return Resolver{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	resolver, err := dns.Open(dns.Config{
		Zones: []string{"internal"}, StateFile: filepath.Join(dir, "names.json"), Limits: dns.Limits{MaxAsked: wildNames},
	})
	if err != nil {
		return Resolver{}, err
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
		return Resolver{}, errors.Join(err, resolver.Close())
	}
	address, stop, err := serveLoopback(ctx, resolver)
	if err != nil {
		return Resolver{}, errors.Join(err, resolver.Close())
	}
	found, err = askBoth(ctx, address, names, inFlight, duration)
	found.Services, found.InFlight = services, inFlight
	return found, errors.Join(err, stop(), resolver.Close())
}

// askBoth measures the resolver at address and the bare server.
func askBoth(ctx context.Context, address string, names []string, inFlight int, duration time.Duration) (found Resolver, err error) {
	bare, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return Resolver{}, err
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
		q := Questions{Kind: kind.name, PerSecond: rate, Latency: latency}
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
