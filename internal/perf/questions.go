// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Questions sends packets, DNS queries of any kind, over UDP to server and waits
// for an answer to each, inFlight at a time, each over a socket of its own and
// with another of the packets each time. An answer counts when its id is the
// question's. One that does not come within a second, or says that the server
// failed, ends the measurement with an error: on loopback none is lost.
//
// It gives how long answers took and how many came in a second.
func Questions(ctx context.Context, server string, packets [][]byte, inFlight int, bound Bound) (Distribution, float64, error) {
	most, err := bound.count()
	if err != nil {
		return Distribution{}, 0, err
	}
	if len(packets) == 0 || inFlight < 1 {
		return Distribution{}, 0, errors.New("no packets to send, or none at a time")
	}
	start := time.Now()
	end := bound.until(start)
	samples := make([][]time.Duration, inFlight)
	failures := make([]error, inFlight)
	var running sync.WaitGroup
	for i := range inFlight {
		running.Go(func() {
			samples[i], failures[i] = ask(ctx, server, packets, i, (most+inFlight-1)/inFlight, end)
		})
	}
	running.Wait()
	took := time.Since(start)
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s...)
	}
	return distribution(all), float64(len(all)) / took.Seconds(), errors.Join(failures...)
}

// The code of an answer stands in the low bits of its fourth byte (RFC 1035 section 4.1.1).
const rcode, serverFailure = 0x0F, 2

// ask is one of those who ask at a time.
func ask(ctx context.Context, server string, packets [][]byte, first, count int, end time.Time) ([]time.Duration, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var samples []time.Duration
	answer := make([]byte, 64<<10)
	for i := range count {
		packet := packets[(first+i*7919)%len(packets)] // a prime stride: not all ask the same
		began := time.Now()
		if began.After(end) {
			break
		}
		if err := conn.SetDeadline(began.Add(time.Second)); err != nil {
			return samples, err
		}
		if _, err := conn.Write(packet); err != nil {
			return samples, err
		}
		size, err := conn.Read(answer)
		if err != nil {
			return samples, err
		}
		if size < len(packet) || answer[0] != packet[0] || answer[1] != packet[1] {
			return samples, fmt.Errorf("got %d bytes that answer another question", size)
		}
		if answer[3]&rcode == serverFailure {
			return samples, errors.New("the server failed: SERVFAIL")
		}
		samples = append(samples, time.Since(began))
	}
	return samples, context.Cause(ctx)
}
