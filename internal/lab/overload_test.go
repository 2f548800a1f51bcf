// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// crowded has a host that takes no circuit, and a server.
const crowded = `
controllers: [{name: c1}]
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities:
  - {name: alice, roles: [staff], edgeRouters: [r1]}
  - {name: carol, roles: [staff], edgeRouters: [r1]}
  - {name: bob, edgeRouters: [r2]}
services:
  - {name: echo, terminators: [{router: r2, address: "tcp:ECHO"}]}
  - {name: late}
policies:
  - {kind: dial, identities: ["#staff"], services: ["#all"]}
  - {kind: bind, identities: ["@bob"], services: ["@late"]}
`

// TestOverload has one identity dial, over TCP, as much at once as it may have set up,
// at a host that does not answer. What it dials beyond that is BUSY, and says when to
// come back; what runs over the same routers loses nothing, and another identity is
// served as if nobody else were there.
func TestOverload(t *testing.T) {
	t.Parallel()
	w := open(t, crowded, lab.Options{Plain: true})
	alice, carol := w.client("alice"), w.client("carol")
	l, err := w.client("bob").Listen("late", sdk.ListenOptions{
		Backlog: 4096,
		Connect: func(ctx context.Context, _ sdk.Incoming) (io.Closer, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	w.must(err)
	defer func() { w.must(l.Close()) }()
	w.bound("late", 1)
	running := w.connect(alice, "echo")

	const most = 1024 // set-ups of an identity
	ctx, enough := context.WithTimeout(t.Context(), 2*time.Minute)
	defer enough()
	var crowd, beside sync.WaitGroup
	for range most {
		crowd.Go(func() {
			for ctx.Err() == nil { // so many at once are too much for a slow machine: they come again
				_, err := alice.DialService(ctx, "late", sdk.DialOptions{})
				if _, ok := errors.AsType[*ginnel.DialError](err); !ok {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	beside.Go(func() { w.flows(running, ctx.Done()) })
	w.eventually(func() error {
		if n := w.setups(); n != most {
			return errCount{n, most}
		}
		return nil
	})
	var busy atomic.Int32
	var more sync.WaitGroup
	for range 16 {
		more.Go(func() {
			for ctx.Err() == nil {
				brief, cancel := context.WithTimeout(ctx, 900*time.Millisecond) // no time to come back
				_, err := alice.DialService(brief, "late", sdk.DialOptions{})
				cancel()
				if dial, ok := errors.AsType[*ginnel.DialError](err); ok && dial.Code == ginnel.Busy && dial.RetryAfter > 0 {
					busy.Add(1)
					return
				}
			}
		})
	}
	for range 16 {
		w.eventually(func() error { return w.attempt(carol, "echo") })
	}
	more.Wait()
	if busy.Load() != 16 {
		t.Errorf("of 16 dials that were too many %d were told that it is busy", busy.Load())
	}
	enough()
	crowd.Wait()
	beside.Wait()
	w.eventually(func() error { return w.attempt(alice, "echo") }) // there is room again
	w.must(running.Close())
	w.eventually(w.noCircuits)
}

// flows says things to an echo, one after the other, until done, and wants each back.
func (w *world) flows(conn net.Conn, done <-chan struct{}) {
	beat := time.NewTicker(10 * time.Millisecond)
	defer beat.Stop()
	rng := rand.New(rand.NewPCG(1, 8))
	piece, got := make([]byte, 32<<10), make([]byte, 32<<10)
	for rounds := 0; ; rounds++ {
		for i := range piece {
			piece[i] = byte(rng.Uint32())
		}
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(piece)
			sent <- err
		}()
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, piece) {
			w.t.Errorf("round %d of what runs: %v", rounds, err)
			return
		}
		if err := <-sent; err != nil {
			w.t.Errorf("round %d of what runs: %v", rounds, err)
		}
		select {
		case <-done:
			return
		case <-beat.C:
		}
	}
}

// setups gives how many circuits the controller is setting up.
func (w *world) setups() int {
	w.t.Helper()
	families, err := w.Controller("c1").Metrics().Gather()
	w.must(err)
	for _, f := range families {
		if f.GetName() == "ginnel_circuit_setups" {
			return int(f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	w.t.Fatal("set-ups are not counted")
	return 0
}
