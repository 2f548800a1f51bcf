// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/sdk"
)

// diamond has two ways from r1, where alice enters, to r4; bob hosts at r4.
func (m *memory) diamond() {
	m.Helper()
	for _, r := range []string{"r1", "r2", "r3", "r4"} {
		m.router(r, nil)
	}
	for _, l := range [][2]string{{"r1", "r2"}, {"r2", "r4"}, {"r1", "r3"}, {"r3", "r4"}} {
		m.link(l[0], l[1])
	}
	m.server("server")
	m.server("dark")
	m.identity("alice", "r1")
	m.identity("bob", "r4")
	m.service(ginnel.Service{ID: "echo"}, "r4", "tcp:server:80", "r3", "tcp:server:80")
	m.service(ginnel.Service{ID: "refused"}, "r4", "tcp:server:81")
	m.service(ginnel.Service{ID: "dark"}, "r4", "tcp:dark:80")
	m.service(ginnel.Service{ID: "hosted"})
	m.net.Silence("dark", "r4")
}

// TestNoRowIsLeft has dials end in every way, over routers, links and controllers that
// come and go: refused, silent, late, given up, reset. When all is over no table of
// any router holds a row, and no controller counts anything.
func TestNoRowIsLeft(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	inMemory(t, func(m *memory) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m.diamond()
		m.controller("c1")
		m.controller("c2")
		m.wait(5 * time.Second)
		alice, bob := m.client("alice"), m.client("bob")
		l, err := bob.Listen("hosted", sdk.ListenOptions{Connect: whatever(seed)})
		m.must(err)
		m.served.Go(func() { m.echoes(l) })
		m.wait(time.Second)
		var good, bad atomic.Int32
		var dials sync.WaitGroup
		services := []string{"echo", "refused", "dark", "hosted", "hosted"}
		mend := func() {}
		for i := range randomDials {
			if i%50 == 0 {
				mend()
				mend = m.fault(rng)
			}
			service, life, how := services[rng.IntN(len(services))], rng.IntN(3000), rng.IntN(3)
			dials.Go(func() {
				ctx, cancel := context.WithTimeout(m.Context(), time.Duration(20+life)*time.Millisecond)
				defer cancel()
				conn, err := alice.DialService(ctx, ginnel.ServiceID(service), sdk.DialOptions{})
				if err != nil {
					bad.Add(1)
					if _, ok := errors.AsType[*ginnel.DialError](err); !ok {
						m.Errorf("%T: %v", err, err)
					}
					return
				}
				good.Add(1)
				if how > 0 {
					_, _ = conn.Write([]byte("hello"))
				}
				if how > 1 {
					_ = conn.Close()
					return
				}
				_ = conn.Abort()
			})
			pass(time.Duration(rng.IntN(20)) * time.Millisecond)
		}
		mend()
		dials.Wait()
		m.Logf("%d circuits, %d dials that failed", good.Load(), bad.Load())
		if good.Load() < randomDials/50 || bad.Load() < randomDials/4 {
			m.Errorf("%d good, %d bad: that tests little", good.Load(), bad.Load())
		}
		m.wait(5 * time.Minute)
		for id, r := range m.routers {
			if rows := r.Status().Circuits; rows != 0 {
				m.Errorf("router %s holds %d rows", id, rows)
			}
		}
		m.noCircuits()
		terminators, err := m.api("c1").Terminators().List(m.Context())
		m.must(err)
		for _, x := range terminators {
			if x.Circuits != 0 {
				m.Errorf("terminator %s counts %d circuits", x.ID, x.Circuits)
			}
		}
		m.must(l.Close())
	})
}

// whatever is a backend that takes, refuses, is late or hangs.
func whatever(seed uint64) func(context.Context, sdk.Incoming) (io.Closer, error) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 2))
	return func(ctx context.Context, in sdk.Incoming) (io.Closer, error) {
		mu.Lock()
		n, late := rng.IntN(5), time.Duration(rng.IntN(2000))*time.Millisecond
		mu.Unlock()
		switch n {
		case 0:
			return nil, errors.New("not now")
		case 1:
			return hang(ctx, in)
		case 2:
			pass(late) // whatever became of who asked
		}
		return nil, nil
	}
}

// fault breaks something, or nothing, until it is mended.
func (m *memory) fault(rng *rand.Rand) (mend func()) {
	transit := []string{"r2", "r3"}[rng.IntN(2)]
	end := []string{"r1", "r4"}[rng.IntN(2)]
	asked := []string{"c1", "c2"}[rng.IntN(2)]
	switch rng.IntN(6) {
	case 0:
		m.stopRouter(transit)
		return func() { m.startRouter(transit) }
	case 1:
		m.part(transit, end)
		return func() {
			m.net.Resume(transit, end)
			m.net.Resume(end, transit)
		}
	case 2: // Routes are not heard, or their answers are not
		from, to := asked, transit
		if rng.IntN(2) == 0 {
			from, to = to, from
		}
		m.net.Silence(from, to)
		return func() { m.net.Resume(from, to) }
	case 3: // answers come late
		m.net.SetLatency(asked, end, 700*time.Millisecond)
		return func() { m.net.SetLatency(asked, end, 0) }
	case 4: // in the middle of what it sets up
		m.stopController(asked)
		return func() { m.controller(asked) }
	}
	return func() {}
}

// TestHostHearsThatNobodyWaits wants a host's attempt to end as soon as the
// client has given up, not when its time is over.
func TestHostHearsThatNobodyWaits(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		bob, alice := m.client("bob"), m.client("alice")
		var began, ended time.Time
		l, err := bob.Listen("hosted", sdk.ListenOptions{Connect: func(ctx context.Context, in sdk.Incoming) (io.Closer, error) {
			began = time.Now()
			defer func() { ended = time.Now() }()
			return hang(ctx, in)
		}})
		m.must(err)
		m.wait(time.Second)
		ctx, cancel := context.WithCancel(m.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := alice.DialService(ctx, "hosted", sdk.DialOptions{}); !errors.Is(err, ginnel.Cancelled) {
			m.Errorf("got %v", err)
		}
		m.wait(10 * time.Millisecond)
		if took := ended.Sub(began); took != time.Second {
			m.Errorf("the host tried for %v, want a second", took)
		}
		m.must(l.Close())
	})
}

// TestAnyControllerAnswersTheSame asks three controllers for the same dials, also
// just after one of them was started anew: path, costs and code are the same.
func TestAnyControllerAnswersTheSame(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		all := []string{"c1", "c2", "c3"}
		for _, c := range all {
			m.controller(c)
		}
		m.wait(20 * time.Second)
		m.sameEverywhere(all)
		for _, c := range all {
			m.stopController(c)
			m.wait(time.Second)
			m.controller(c)
			m.wait(time.Second)
			m.sameEverywhere(all)
		}
	})
}

// sameEverywhere dials until each controller has answered for each service. A
// client asks one controller as long as it answers, so each is asked by others.
func (m *memory) sameEverywhere(controllers []string) {
	m.Helper()
	seen := map[string]map[string]string{} // answers by service and controller
	services := []string{"echo", "refused", "hosted", "nothing"}
	for _, service := range services {
		seen[service] = map[string]string{}
	}
	for n := 0; len(seen["echo"]) < len(controllers); n++ {
		if n == 50 {
			m.Fatalf("of 50 clients none has asked some controller: %v", seen["echo"])
		}
		c := m.client("alice")
		for _, service := range services {
			conn, err := m.dial(c, service, dialTime, sdk.DialOptions{})
			var circuit ginnel.CircuitID
			if err == nil {
				circuit = conn.Circuit()
				_ = conn.Abort()
			} else if dial, ok := errors.AsType[*ginnel.DialError](err); ok {
				circuit = dial.Circuit
			}
			m.wait(time.Second)
			for _, id := range controllers {
				// Who was not asked may have heard of the circuit's end.
				if x, err := m.api(id).ExplainCircuit(m.Context(), string(circuit)); err == nil && x[0].Event == api.EventDial {
					seen[service][id] = m.answer(x[0])
				}
			}
		}
		m.must(c.Close())
	}
	for _, service := range services {
		for _, id := range controllers {
			if got, want := seen[service][id], seen[service][controllers[0]]; got != want || got == "" {
				m.Errorf("%s: controller %s answers\n%s, controller %s\n%s", service, id, got, controllers[0], want)
			}
		}
	}
}

// answer gives what every controller must say alike: not how long it took, and
// not the cost of what has failed or is open just now.
func (m *memory) answer(x api.Explanation) string {
	m.Helper()
	for i := range x.Candidates {
		x.Candidates[i].Dynamic, x.Candidates[i].Total = 0, 0
	}
	for i := range x.Hops {
		x.Hops[i].Route = 0
	}
	text, err := json.Marshal(map[string]any{"code": x.Code, "path": x.Path, "links": x.Links, "hops": x.Hops, "candidates": x.Candidates})
	m.must(err)
	return string(text)
}

// TestDeletedIdentityLetsGo has an identity deleted while its program is cut off
// from every edge router: back again it is refused, and that ends its circuits at
// once. After that it asks as seldom as it may.
func TestDeletedIdentityLetsGo(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		host := m.net.Host("alice")
		var tries atomic.Int32
		alice := m.clientOver("alice", func(ctx context.Context, _, address string) (net.Conn, error) {
			tries.Add(1)
			return host.Dial(ctx, address)
		})
		conn, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
		m.must(err)
		m.says(conn, "hello")
		m.wait(10 * time.Second)
		m.part("alice", "r1")
		m.wait(10 * time.Second)
		m.update(func(tx *store.Tx) error { return tx.Identities().Delete("alice") })
		m.wait(10 * time.Second)
		m.net.Resume("alice", "r1")
		m.net.Resume("r1", "alice")
		began := time.Now()
		_, err = conn.Read(make([]byte, 1))
		if took := time.Since(began); !errors.Is(err, ginnel.Revoked) || took > 30*time.Second { // not the minute that a circuit waits for a path
			m.Errorf("after %v: %v", took, err)
		}
		m.wait(time.Minute)
		tries.Store(0)
		m.wait(5 * time.Minute)
		if n := tries.Load(); n > 65 {
			m.Errorf("%d connections in five minutes, want one every 5 s at most", n)
		}
	})
}

// TestOverloadIsBusy dials thousands of times at once what takes its time, more
// than routers and controllers set up at once: every dial is answered in its time,
// those that are too many with BUSY and when to come back, and a connection that
// runs meanwhile does not notice.
func TestOverloadIsBusy(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		bob, alice := m.client("bob"), m.client("alice")
		l, err := bob.Listen("hosted", sdk.ListenOptions{Connect: hang, Backlog: 4096})
		m.must(err)
		m.wait(time.Second)
		conn, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
		m.must(err)
		const limit = 900 * time.Millisecond // no time to come back a second later
		var busy, tried atomic.Int32
		var crowd sync.WaitGroup
		for range 3000 {
			crowd.Go(func() {
				began := time.Now()
				_, err := m.dial(alice, "hosted", limit, sdk.DialOptions{})
				dial, ok := errors.AsType[*ginnel.DialError](err)
				switch {
				case !ok || time.Since(began) > limit:
					m.Errorf("after %v: %v", time.Since(began), err)
				case dial.Code == ginnel.Busy && dial.RetryAfter <= 0:
					m.Errorf("busy, and it does not say until when: %v", dial)
				case dial.Code == ginnel.Busy:
					busy.Add(1)
				case dial.Code == ginnel.RouterErrDialTimedOut, dial.Code == ginnel.RouterErrResourcesNotAvailable,
					dial.Code == ginnel.RouterResponseTimeout, dial.Code == ginnel.DeadlineExceeded:
					tried.Add(1)
				default:
					m.Errorf("got %v", dial)
				}
			})
		}
		over := make(chan struct{})
		go func() {
			crowd.Wait()
			close(over)
		}()
		piece := make([]byte, 32<<10)
		for rounds, done := 0, false; !done; rounds++ {
			piece[rounds%len(piece)]++
			began := time.Now()
			m.says(conn, string(piece))
			if took := time.Since(began); took > 10*time.Millisecond {
				m.Errorf("round %d took %v while nothing is far away", rounds, took)
			}
			pass(10 * time.Millisecond)
			select {
			case <-over:
				done = true
			default:
			}
		}
		m.Logf("%d busy, %d tried", busy.Load(), tried.Load())
		if busy.Load() < 1000 || tried.Load() == 0 {
			m.Errorf("of 3000 dials %d were told that it is busy, and %d were tried", busy.Load(), tried.Load())
		}
		m.must(l.Close())
	})
}
