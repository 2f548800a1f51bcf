// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialloop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// one is a Source in which everybody has the same address.
type one []ginnel.Address

// Addresses gives the address.
func (o one) Addresses(dialer.Key) []ginnel.Address { return o }

// BenchmarkMillion starts a loop over a store of a million routers, none of which
// answers, waits until the scan is through, asking meanwhile as an operator does,
// and ends it.
func BenchmarkMillion(b *testing.B) {
	keys := make([]dialer.Key, 1_000_000)
	for i := range keys {
		keys[i] = dialer.Key(fmt.Sprintf("r%07d", i))
	}
	for b.Loop() {
		next := 0
		cfg := dialer.Defaults()
		cfg.DialDelay = 0
		l := New(Options{
			Config: cfg, Random: rand.New(rand.NewPCG(1, 2)), Source: one{"tls:a:1"},
			Dial: func(ctx context.Context, _ dialer.Key, _ ginnel.Address) (uint64, error) {
				<-ctx.Done()
				return 0, errors.New("gave up")
			},
			Close: func(dialer.Key, uint64) {},
			Keys: func(_ dialer.Key, limit int) []dialer.Key { // asked in order
				page := keys[next:min(next+limit, len(keys))]
				next += len(page)
				return page
			},
		})
		ctx, cancel := context.WithCancel(b.Context())
		var done sync.WaitGroup
		began := time.Now()
		done.Go(func() { l.Run(ctx) })
		var slowest time.Duration
		for tracked := 0; tracked < len(keys); {
			asked := time.Now()
			if err := l.Ask(ctx, func(d *dialer.Dialer) { tracked = d.Stats().Tracked }); err != nil {
				b.Fatal(err)
			}
			slowest = max(slowest, time.Since(asked))
		}
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
		b.ReportMetric(float64(slowest.Microseconds()), "slowest-answer-us")
		began = time.Now()
		cancel()
		done.Wait()
		b.ReportMetric(float64(time.Since(began).Microseconds()), "end-us")
	}
}
