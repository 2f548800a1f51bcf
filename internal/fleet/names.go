// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/ginnel/ginnel/internal/perf"
)

// Names measures what intercepting costs: a program that knows nothing of the network
// and connects by name, beside ways through the same network without that.
type Names struct {
	Rounds   int
	Connects int           // connections of each round
	Duration time.Duration // of each stream
}

// NamesFigure is one thing measured, the median of the rounds.
type NamesFigure struct {
	Name        string  `json:"name"`
	Unit        string  `json:"unit"`
	Intercepted float64 `json:"intercepted"`
	Beside      float64 `json:"beside"`
	What        string  `json:"what"` // what it is beside
}

// Run measures. It intercepts on this host, which takes root, and should be a network
// namespace made for it.
func (b Names) Run(ctx context.Context, p Program) (found []NamesFigure, err error) {
	err = p.with(ctx, func(f *fleet, dir, server string) error {
		n, client, err := f.network(dir, server, shortWay())
		if err != nil {
			return err
		}
		defer client.Close()
		defer n.client.Close()
		start, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		t, err := n.startTunneler(start, n.path(machine+".json"), "--dns", "127.0.0.1:0", "--intercept")
		if err != nil {
			return err
		}
		bySDK := func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, short) }
		byListener := perf.DialTCP(t.listen[short])
		for _, m := range []struct {
			NamesFigure
			beside  perf.Dial
			measure func(context.Context, perf.Dial) (float64, error)
		}{
			{NamesFigure{Name: "connect by name + first byte p50", Unit: "ms", What: "SDK"}, bySDK, b.latency},
			{NamesFigure{Name: "1 stream up", Unit: "Gbit/s", What: "--listen"}, byListener, b.up},
			{NamesFigure{Name: "1 stream down", Unit: "Gbit/s", What: "--listen"}, byListener, b.down},
		} {
			figure := m.NamesFigure
			figure.Intercepted, figure.Beside, err = inTurns(ctx, b.Rounds, t.byName(shortWay().name()), m.beside, m.measure)
			if err != nil {
				return fmt.Errorf("%s: %w", figure.Name, err)
			}
			found = append(found, figure)
		}
		return nil
	})
	return found, err
}

// latency gives how long a connection takes until its first byte, in milliseconds.
func (b Names) latency(ctx context.Context, dial perf.Dial) (float64, error) {
	got, err := perf.Connect(ctx, dial, 1, perf.Bound{Count: b.Connects})
	return got.Latency.P50, err
}

// up gives what one stream to the server carries, in Gbit/s.
func (b Names) up(ctx context.Context, dial perf.Dial) (float64, error) {
	got, err := perf.Push(ctx, dial, perf.Load{Up: 1, Duration: b.Duration})
	if err != nil {
		return 0, err
	}
	return got.Up.Gbits, nil
}

// down gives what one stream from the server carries, in Gbit/s.
func (b Names) down(ctx context.Context, dial perf.Dial) (float64, error) {
	got, err := perf.Push(ctx, dial, perf.Load{Down: 1, Duration: b.Duration})
	if err != nil {
		return 0, err
	}
	return got.Down.Gbits, nil
}

// inTurns measures two ways so many times each, each of them first in turn, and gives
// the medians.
func inTurns(ctx context.Context, rounds int, a, b perf.Dial, measure func(context.Context, perf.Dial) (float64, error)) (ofA, ofB float64, err error) {
	var values [2][]float64
	for round := range rounds {
		for k := range 2 {
			side := (round + k) % 2
			v, err := measure(ctx, []perf.Dial{a, b}[side])
			if err != nil {
				return 0, 0, err
			}
			values[side] = append(values[side], v)
		}
	}
	return middle(values[0]), middle(values[1]), nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
