// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/sdk"
)

// servePerfPackets answers datagrams at HOST:PORT, and says where.
func servePerfPackets(ctx context.Context, cmd *cobra.Command, listen string) error {
	conn, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	address := conn.LocalAddr().String()
	if err := said(cmd, perf.Ready{Address: address}, "listening on udp:"+address); err != nil {
		return err
	}
	return new(perf.DatagramServer).Serve(ctx, conn)
}

// servePerfFlows answers the datagrams that are dialed to a service.
func servePerfFlows(ctx context.Context, cmd *cobra.Command, client *sdk.Client, service string, opts sdk.ListenOptions) error {
	listener, err := client.ListenPacket(service, opts)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	if err := saidServing(cmd, service); err != nil {
		return err
	}
	var server perf.DatagramServer
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		flow, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		serving.Go(func() { server.ServeFlow(ctx, flow) })
	}
}

func dialPackets(client *sdk.Client, service string) perf.Dial {
	return func(ctx context.Context) (net.Conn, error) {
		return client.DialPacket(ctx, ginnel.ServiceID(service), sdk.DialOptions{})
	}
}

// packetKinds is what a client can measure with datagrams.
func packetKinds() []string { return []string{"datagrams", "echo"} }

func (c perfClient) measurePackets(ctx context.Context, kind string, live live) (perfResult, error) {
	defer live.clear()
	live.say(kind)
	r := perfResult{Measure: kind}
	if kind == "echo" {
		trip, flow, err := perf.EchoDatagrams(ctx, c.dial, c.size, perf.Bound{Duration: c.duration})
		r.Trip, r.Datagrams = &trip, &flow
		return r, err
	}
	flood := perf.Flood{Size: c.size, Rate: c.rate, Duration: c.duration}
	if live.w != nil {
		flood.Live = func(now perf.DatagramFlow) {
			live.say(fmt.Sprintf("%s: %d sent, %d arrived, %.0f a second", kind, now.Sent, now.Arrived, now.PerSecond))
		}
	}
	flow, err := perf.SendDatagrams(ctx, c.dial, flood)
	r.Datagrams = &flow
	return r, err
}

func packetColumns() []column[perfResult] {
	flow := func(cell func(perf.DatagramFlow) string) func(perfResult) string {
		return func(r perfResult) string { return cell(*r.Datagrams) }
	}
	latency := func(of func(perf.Distribution) float64) func(perfResult) string {
		return func(r perfResult) string {
			if r.Trip == nil {
				return ""
			}
			return fmt.Sprintf("%.3f", of(*r.Trip))
		}
	}
	return []column[perfResult]{
		{"MEASURE", func(r perfResult) string { return r.Measure }},
		{"SIZE", flow(func(f perf.DatagramFlow) string { return fmt.Sprint(f.Size) })},
		{"SENT", flow(func(f perf.DatagramFlow) string { return fmt.Sprint(f.Sent) })},
		{"ARRIVED", flow(func(f perf.DatagramFlow) string { return fmt.Sprint(f.Arrived) })},
		{"LOSS", flow(func(f perf.DatagramFlow) string { return fmt.Sprintf("%.2f%%", 100*f.Loss) })},
		{"DATAGRAMS/s", flow(func(f perf.DatagramFlow) string { return fmt.Sprintf("%.0f", f.PerSecond) })},
		{"Gbit/s", flow(func(f perf.DatagramFlow) string { return fmt.Sprintf("%.3f", f.Gbits) })},
		{"LOST", flow(func(f perf.DatagramFlow) string { return f.Lost.String() })},
		{"p50 ms", latency(func(d perf.Distribution) float64 { return d.P50 })},
		{"p99 ms", latency(func(d perf.Distribution) float64 { return d.P99 })},
	}
}
