// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// through has one way in: two identities dial over r1 what is behind r2 and r3.
const through = `
controllers: [{name: c1}]
routers: [{name: r1}, {name: r2}, {name: r3}]
links: [{a: r1, b: r2}, {a: r2, b: r3}]
identities:
  - {name: alice, roles: [staff], edgeRouters: [r1]}
  - {name: carol, roles: [staff], edgeRouters: [r1]}
  - {name: bob, edgeRouters: [r1, r3]}
services:
  - {name: echo, terminators: [{router: r3, address: "tcp:ECHO"}]}
  - {name: hosted}
hosts: [{identity: bob, service: hosted, address: "tcp:ECHO"}]
policies: [{kind: dial, identities: ["#staff"], services: ["@echo", "@hosted"]}]
`

// idle is satisfied when no circuit has left anything, at routers or controllers.
func (w *world) idle() error {
	if err := w.noRows(); err != nil {
		return err
	}
	circuits, err := w.admin().Circuits.ListCircuits(w.t.Context())
	if err != nil {
		return err
	}
	if len(circuits) > 0 {
		return fmt.Errorf("%d circuits are reported", len(circuits))
	}
	for _, service := range []string{"echo", "hosted"} {
		for _, t := range w.terminators("c1", service) {
			if t.Circuits != 0 || t.Dynamic != t.Failure {
				return fmt.Errorf("terminator %s costs %v", t.ID, t.Dynamic)
			}
		}
	}
	return nil
}

// TestL37_L38_BurstOfDials dials hundreds of times at once in two names over one
// router, and gives a third up at random: no answer goes to another, and nothing
// is left behind.
func TestL37_L38_BurstOfDials(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := open(t, through, lab.Options{Plain: true})
	clients := map[string]*sdk.Client{"alice": w.client("alice"), "carol": w.client("carol")}
	for _, c := range clients {
		for _, service := range []string{"echo", "hosted"} {
			w.dialable(c, service)
		}
	}
	before := runtime.NumGoroutine()
	const each = 150
	var running sync.WaitGroup
	var good, given, refused atomic.Int32
	for name, c := range clients {
		rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
		for i := range each {
			service := []string{"echo", "hosted"}[rng.IntN(2)]
			patience := time.Minute
			if rng.IntN(3) == 0 {
				patience = time.Duration(rng.IntN(1000)) * time.Millisecond
			}
			text := fmt.Sprintf("%s %d %s", name, i, service)
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				time.AfterFunc(patience, cancel)
				conn, err := c.DialService(ctx, ginnel.ServiceID(service), sdk.DialOptions{})
				switch {
				case err == nil:
					defer func() { _ = conn.Close() }()
					if err := echo(conn, text); err != nil {
						t.Errorf("%s: %v", text, err)
					}
					good.Add(1)
				case patience < time.Minute && errors.Is(err, ginnel.Cancelled):
					given.Add(1)
				case overloaded(err): // said so in time: what a slow machine may do
					refused.Add(1)
				default:
					t.Errorf("%s: %v", text, err)
				}
			})
		}
	}
	running.Wait()
	t.Logf("%d circuits, %d given up, %d refused", good.Load(), given.Load(), refused.Load())
	if good.Load() == 0 {
		t.Error("no dial succeeded")
	}
	t.Logf("idle after %s", w.eventually(w.idle))
	w.eventually(func() error {
		if now := runtime.NumGoroutine(); now > before+50 {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}

// overloaded reports whether a dial failed because there were too many at once.
func overloaded(err error) bool {
	for _, code := range []ginnel.Code{ginnel.Busy, ginnel.RouterResponseTimeout, ginnel.RouterErrDialTimedOut, ginnel.DeadlineExceeded} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}
