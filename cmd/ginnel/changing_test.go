// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/sdk"
)

// crowd dials a service so many times, a little apart, and gives how each dial ended.
func (m *memory) crowd(c *sdk.Client, service string, n int, patience time.Duration) (ended func() []error) {
	var mu sync.Mutex
	var all []error
	var dials sync.WaitGroup
	dials.Go(func() {
		for range n {
			dials.Go(func() {
				began := time.Now()
				conn, err := m.dial(c, service, patience, sdk.DialOptions{})
				if took := time.Since(began); took > patience {
					err = fmt.Errorf("it took %v: %w", took, err)
				}
				if err == nil {
					_, err = conn.Write([]byte("hello"))
				}
				if err == nil {
					_, err = io.ReadFull(conn, make([]byte, 5))
				}
				if conn != nil {
					_ = conn.Abort()
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, err)
			})
			pass(10 * time.Millisecond)
		}
	})
	return func() []error {
		dials.Wait()
		return all
	}
}

// TestControllerRestartsUnderDials kills the controller that everybody asks in the
// middle of a hundred dials, and starts it again. With another one every dial comes
// through; without, those fail at once that nobody can answer, and say why.
func TestControllerRestartsUnderDials(t *testing.T) {
	for _, both := range []bool{true, false} {
		t.Run(fmt.Sprintf("another one: %t", both), func(t *testing.T) {
			inMemory(t, func(m *memory) {
				m.diamond()
				m.controller("c1")
				m.wait(20 * time.Second)
				alice := m.client("alice") // asks c1
				if both {
					m.controller("c2")
				}
				m.wait(20 * time.Second)
				m.net.SetLatency("c1", "r1", 15*time.Millisecond) // so that some are under way
				ended := m.crowd(alice, "echo", 100, dialTime)
				pass(300 * time.Millisecond)
				m.stopController("c1")
				pass(300 * time.Millisecond)
				m.controller("c1")
				failed := 0
				for _, err := range ended() {
					switch {
					case err == nil:
					case !both && (errors.Is(err, ginnel.ControllerUnavailable) || errors.Is(err, ginnel.EdgeRouterUnavailable)):
						failed++
					default:
						m.Errorf("got %v", err)
					}
				}
				if !both && failed == 0 {
					m.Error("no dial has failed: that tests nothing")
				}
				m.wait(20 * time.Second)
				for _, err := range m.crowd(alice, "echo", 10, dialTime)() {
					m.must(err)
				}
				m.wait(5 * time.Minute)
				m.noRows()
			})
		})
	}
}

// noRows wants no router to hold a row.
func (m *memory) noRows() {
	m.Helper()
	for id, r := range m.routers {
		if rows := r.Status().Circuits; rows != 0 {
			m.Errorf("router %s holds %d rows", id, rows)
		}
	}
}

// TestTerminatorsComeAndGoUnderDials makes and deletes terminators, one of which is
// always there, while a service with each strategy is dialed: every dial comes through.
func TestTerminatorsComeAndGoUnderDials(t *testing.T) {
	for _, strategy := range []ginnel.Strategy{ginnel.Smartrouting, ginnel.Weighted, ginnel.RandomPick, ginnel.Sticky} {
		t.Run(string(strategy), func(t *testing.T) {
			inMemory(t, func(m *memory) {
				m.diamond()
				at := func(router string) ginnel.Terminator {
					return ginnel.Terminator{
						ID: ginnel.TerminatorID("moving@" + router), Service: "moving", Router: ginnel.RouterID(router),
						Address: "tcp:server:80", Precedence: ginnel.DefaultPrecedence,
					}
				}
				m.service(ginnel.Service{ID: "moving", Strategy: strategy}, "r3", "tcp:server:80")
				m.controller("c1")
				m.controller("c2")
				m.wait(20 * time.Second)
				alice := m.client("alice")
				ended := m.crowd(alice, "moving", 200, dialTime)
				for i := range 10 {
					here, there := "r3", "r4"
					if i%2 == 1 {
						here, there = there, here
					}
					pass(70 * time.Millisecond)
					m.update(func(tx *store.Tx) error { return tx.Terminators().Put(at(there)) })
					pass(130 * time.Millisecond)
					m.update(func(tx *store.Tx) error { return tx.Terminators().Delete(at(here).ID) })
				}
				for _, err := range ended() {
					if err != nil {
						m.Error(err)
					}
				}
			})
		})
	}
}

// TestStickyComesBack: a token brings back to its terminator, elsewhere while that is
// gone, and back once it is there again.
func TestStickyComesBack(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		m.service(ginnel.Service{ID: "sticky", Strategy: ginnel.Sticky}, "r3", "tcp:server:80", "r4", "tcp:server:80")
		m.controller("c1")
		m.controller("c2")
		m.wait(20 * time.Second)
		egress := func(token string) string {
			m.Helper()
			conn, err := m.dial(m.client("alice"), "sticky", dialTime, sdk.DialOptions{Sticky: token, Explain: true})
			m.must(err)
			m.says(conn, "hello")
			path := conn.Explain().Path
			m.must(conn.Abort())
			return string(path[len(path)-1])
		}
		const token = "sticky@r4"
		if got := egress(""); got != "r3" {
			m.Fatalf("the nearest is at %s", got)
		}
		for _, want := range []string{"r4", "r3", "r4"} {
			if want == "r3" {
				m.update(func(tx *store.Tx) error { return tx.Terminators().Delete(token) })
			} else {
				m.service(ginnel.Service{ID: "sticky", Strategy: ginnel.Sticky}, "r4", "tcp:server:80")
			}
			for range 3 {
				if got := egress(token); got != want {
					m.Errorf("with the token to %s, want %s", got, want)
				}
			}
		}
	})
}

// TestServiceDeletedUnderCircuits deletes a service while circuits run: they end in
// 5 s, dials are told that there is none, and one made anew by that name is dialed.
func TestServiceDeletedUnderCircuits(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		m.controller("c1")
		m.wait(20 * time.Second)
		alice, bob := m.client("alice"), m.client("bob")
		l, err := bob.Listen("hosted", sdk.ListenOptions{})
		m.must(err)
		m.served.Go(func() { m.echoes(l) })
		m.wait(time.Second)
		for _, service := range []string{"echo", "hosted"} {
			conn, err := m.dial(alice, service, dialTime, sdk.DialOptions{})
			m.must(err)
			m.says(conn, "hello")
			m.must(m.api("c1").Services().Delete(m.Context(), service))
			m.revokedInTime(conn)
			m.wait(time.Second)
			m.noCircuits()
			if _, err := m.dial(alice, service, dialTime, sdk.DialOptions{}); !errors.Is(err, ginnel.InvalidService) {
				m.Errorf("dial of %s: %v", service, err)
			}
		}
		m.service(ginnel.Service{ID: "echo"}, "r4", "tcp:server:80")
		m.service(ginnel.Service{ID: "hosted"})
		m.across(alice, "echo")
		m.wait(2 * time.Second) // bob hears that it may host it
		m.across(alice, "hosted")
		m.must(l.Close())
	})
}

// TestHostBindsAgain takes a host's bind policy away and gives it back: while it may
// not host the service nobody reaches it, and from then on it is reached again. It does
// not try in vain meanwhile.
func TestHostBindsAgain(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		alice, bob := m.client("alice"), m.client("bob")
		l, err := bob.Listen("hosted", sdk.ListenOptions{})
		m.must(err)
		m.served.Go(func() { m.echoes(l) })
		m.wait(time.Second)
		for _, away := range []time.Duration{200 * time.Millisecond, time.Minute} {
			m.across(alice, "hosted")
			m.wait(time.Second) // its end is reported
			before := m.revokedBy("c1")
			m.update(func(tx *store.Tx) error { return tx.Policies().Delete("bind-bob-hosted") })
			m.wait(away)
			if _, err := m.dial(alice, "hosted", dialTime, sdk.DialOptions{}); !errors.Is(err, ginnel.NoTerminators) {
				m.Errorf("got %v", err)
			}
			if n := m.revokedBy("c1") - before; n != 1 || len(l.Routers()) != 0 {
				m.Errorf("%d times revoked, bound at %v", n, l.Routers())
			}
			m.allow(ginnel.BindPolicy, "bob", "hosted")
			m.wait(2 * time.Second)
		}
		m.across(alice, "hosted")
		m.must(l.Close())
	})
}

// TestL45_RevokedWhileResuming takes the policy away while a circuit looks for a path:
// it ends at once and at both ends, not when it would have given up.
func TestL45_RevokedWhileResuming(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		m.controller("c1")
		m.wait(20 * time.Second)
		conn, err := m.dial(m.client("alice"), "echo", dialTime, sdk.DialOptions{})
		m.must(err)
		m.says(conn, "hello")
		for _, transit := range []string{"r2", "r3"} {
			m.part("r1", transit)
		}
		m.wait(5 * time.Second)
		m.update(func(tx *store.Tx) error { return tx.Policies().Delete("dial-alice-echo") })
		m.revokedInTime(conn)
		m.wait(5 * time.Second)
		m.noCircuits()
	})
}

// TestQuiescedDuringASetUp takes all routers of a circuit out of new ones while it is
// being set up: that goes on, and the next one is refused.
func TestQuiescedDuringASetUp(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		m.controller("c1")
		m.wait(20 * time.Second)
		alice, bob := m.client("alice"), m.client("bob")
		l, err := bob.Listen("hosted", sdk.ListenOptions{Connect: func(context.Context, sdk.Incoming) (io.Closer, error) {
			pass(2 * time.Second)
			return nil, nil
		}})
		m.must(err)
		m.served.Go(func() { m.echoes(l) })
		m.wait(time.Second)
		ended := m.crowd(alice, "hosted", 1, dialTime)
		pass(500 * time.Millisecond)
		for _, r := range []string{"r1", "r2", "r3", "r4"} {
			m.quiesce(r, true)
		}
		for _, err := range ended() {
			m.must(err)
		}
		if _, err := m.dial(alice, "hosted", dialTime, sdk.DialOptions{}); !errors.Is(err, ginnel.EdgeRouterUnavailable) {
			m.Errorf("got %v", err)
		}
		m.must(l.Close())
	})
}
