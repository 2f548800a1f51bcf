// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/dialloop"
)

// Starts is how late the dials of one loop started.
type Starts struct {
	Routers   int             `json:"routers"`
	PerSecond float64         `json:"per_second"` // dials that started
	Dials     int             `json:"dials"`
	P50       ginnel.Duration `json:"p50"`
	P99       ginnel.Duration `json:"p99"`
	Max       ginnel.Duration `json:"max"`
	CPU       float64         `json:"cpu"` // processors used on average, by all that runs here
	Heap      uint64          `json:"heap_bytes"`
}

// MeasureStarts runs a loop whose dials fail at once and come round rate times a
// second in all.
func MeasureStarts(ctx context.Context, routers, rate int, duration time.Duration) Starts {
	cfg := dialer.Defaults()
	cfg.DialDelay, cfg.QueueSize = 0, routers
	round := time.Duration(routers) * time.Second / time.Duration(rate)
	cfg.MinRetryInterval, cfg.MaxRetryInterval = round, round
	cfg.ScanSpread = round / time.Duration(routers)
	keys := make([]dialer.Key, routers)
	for i := range keys {
		keys[i] = dialer.Key(fmt.Sprintf("r%07d", i))
	}
	addresses := []ginnel.Address{"tls:router.example:7001"}
	var late []time.Duration
	due := make(map[dialer.Key]time.Time)
	scanned := make(chan struct{})
	seen, measuring := 0, false
	loop := dialloop.New(dialloop.Options{
		Config: cfg, Random: rand.New(rand.NewPCG(1, 2)), Source: everywhere{addresses},
		Dial:  func(context.Context, dialer.Key, ginnel.Address) (uint64, error) { return 0, errNobody },
		Close: func(dialer.Key, uint64) {},
		Keys: func(after dialer.Key, limit int) []dialer.Key {
			i, found := slices.BinarySearch(keys, after)
			if found {
				i++
			}
			return keys[i:min(i+limit, len(keys))]
		},
		Observe: func(_ time.Time, action dialer.Action) {
			switch a := action.(type) {
			case dialer.Moved:
				if a.From == dialer.None {
					if seen++; seen == routers {
						close(scanned)
					}
				}
				if a.To == dialer.Dialing {
					due[a.Key] = a.NextDial
				}
			case dialer.Dial:
				if measuring {
					late = append(late, time.Since(due[a.Key]))
				}
				delete(due, a.Key)
			case dialer.Hangup, dialer.Close, dialer.Scan, dialer.Answered, dialer.Ignored:
			}
		},
	})
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); loop.Run(ctx) }()
	defer func() { cancel(); <-done }()
	select {
	case <-scanned:
	case <-ctx.Done():
		return Starts{}
	}
	// What piled up while the scan ran is not what is measured.
	pause(ctx, min(duration, 2*time.Second))
	_ = loop.Ask(ctx, func(*dialer.Dialer) { measuring = true })
	runtime.GC()
	begun, used := time.Now(), processorTime()
	pause(ctx, duration)
	spent, took := processorTime()-used, time.Since(begun)
	_ = loop.Ask(ctx, func(*dialer.Dialer) { measuring = false })
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	slices.Sort(late)
	s := Starts{Routers: routers, Dials: len(late), PerSecond: float64(len(late)) / took.Seconds(), CPU: spent.Seconds() / took.Seconds(), Heap: memory.HeapAlloc}
	if n := len(late); n > 0 {
		s.P50, s.P99, s.Max = ginnel.Duration(late[n/2]), ginnel.Duration(late[n*99/100]), ginnel.Duration(late[n-1])
	}
	return s
}

var errNobody = errors.New("nobody is there")

// everywhere says that every router is at the same addresses.
type everywhere struct{ addresses []ginnel.Address }

// Addresses implements dialer.Source.
func (e everywhere) Addresses(dialer.Key) []ginnel.Address { return e.addresses }
