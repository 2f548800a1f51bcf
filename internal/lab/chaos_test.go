// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// chaosTime is how long faults are made, unless GINNEL_CHAOS_SECONDS says.
const chaosTime = 8 * time.Second

// setting gives a number out of the environment.
func setting(t *testing.T, name string, unset uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// transfers gives how many circuits carry data at a time, and how much each: fewer in the
// short run of all tests, which has the machine not for itself.
func transfers(length time.Duration) (flows, size int) {
	if length <= chaosTime {
		return 4, 1 << 20
	}
	return 50, 256 << 10
}

// refusals counts the dials that failed, by why.
type refusals struct {
	mu sync.Mutex
	of map[string]int
}

func (r *refusals) add(err error) {
	why := "no code"
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		why = d.Code.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[string]int)
	}
	r.of[why]++
}

// fault is something that is broken and mended again.
type fault struct {
	name        string
	broken, fix func() error
}

// anyFault draws one that circuits must survive when it comes alone, in a network with so
// many controllers.
func (w *world) anyFault(rng *rand.Rand, controllers int) fault {
	router := fmt.Sprint("r", 1+rng.IntN(4))
	link := [][2]string{{"r1", "r2"}, {"r2", "r4"}, {"r1", "r3"}, {"r3", "r4"}}[rng.IntN(4)]
	switch rng.IntN(4) {
	case 0:
		return fault{"kill " + router, func() error { return w.Kill(router) }, func() error { return w.Start(router) }}
	case 1:
		return fault{"silence " + router, func() error { return w.Silence(router) }, func() error { return w.Resume(router) }}
	case 2:
		name := fmt.Sprint("c", 1+rng.IntN(controllers))
		return fault{"kill " + name, func() error { return w.Kill(name) }, func() error { return w.Start(name) }}
	default:
		return fault{
			"link " + link[0] + "-" + link[1] + " down",
			func() error { return w.LinkDown(link[0], link[1]) }, func() error { return w.LinkUp(link[0], link[1]) },
		}
	}
}

// TestChaos breaks one thing after the other at random while bulk data flows both
// ways: every byte of every circuit arrives. `make chaos` runs it for longer; the
// seed it prints, given as GINNEL_CHAOS_SEED, makes the same faults again. An even one has
// three controllers, of which any may answer, and an odd one a single one.
func TestChaos(t *testing.T) {
	seed := setting(t, "GINNEL_CHAOS_SEED", rand.Uint64())
	length := time.Duration(setting(t, "GINNEL_CHAOS_SECONDS", uint64(chaosTime/time.Second))) * time.Second
	t.Logf("GINNEL_CHAOS_SEED=%d GINNEL_CHAOS_SECONDS=%d", seed, length/time.Second)
	said := new(lines)
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	text, controllers := withDatagrams(t), 1
	if seed%2 == 0 {
		text, controllers = strings.Replace(text, "{name: c1}", "{name: c1}, {name: c2}, {name: c3}", 1), 3
	}
	w := open(t, text, lab.Options{Log: log})
	client := w.clientWith("alice", "r1", log.With("node", "client"))
	w.dialable(client, "hosted")
	w.bound("flows", 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var circuits atomic.Int32
	var refused refusals
	flows, size := transfers(length)
	for range flows {
		running.Go(func() {
			for ctx.Err() == nil {
				w.chaosCircuit(ctx, client, size, said, &circuits, &refused)
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			w.chaosDatagrams(ctx, client, &circuits, &refused)
		}
	})
	rng := rand.New(rand.NewPCG(seed, 0))
	for began := time.Now(); time.Since(began) < length && !t.Failed(); {
		f := w.anyFault(rng, controllers)
		lasts := time.Duration(100+rng.IntN(4000)) * time.Millisecond
		t.Logf("%6.2fs %s for %s", time.Since(began).Seconds(), f.name, lasts)
		w.must(f.broken())
		<-time.After(lasts)
		w.must(f.fix())
		w.ready()
		// A host that lost its edge router attaches and binds again.
		w.bound("hosted", 2)
	}
	cancel()
	running.Wait()
	t.Logf("%d circuits; dials refused meanwhile: %v", circuits.Load(), refused.of)
	if circuits.Load() == 0 {
		t.Error("no circuit carried anything")
	}
	w.dialable(client, "hosted")
}

// chaosCircuit carries size bytes each way over a new circuit. A dial may fail while
// something is broken; a circuit may not.
func (w *world) chaosCircuit(ctx context.Context, client *sdk.Client, size int, said *lines, circuits *atomic.Int32, refused *refusals) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := client.DialService(dial, ginnel.ServiceID("hosted"), sdk.DialOptions{})
	if err != nil {
		if d, ok := errors.AsType[*ginnel.DialError](err); !ok || d.Code == ginnel.NotAuthenticated || d.Code == ginnel.StaleGeneration {
			w.t.Errorf("dial: %v", err)
		}
		refused.add(err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := transfer(conn, size, func() error { return nil }); err != nil {
		w.t.Errorf("circuit %s: %v\n%s", conn.Circuit(), err, strings.Join(said.with(string(conn.Circuit())), ""))
		return
	}
	circuits.Add(1)
}
