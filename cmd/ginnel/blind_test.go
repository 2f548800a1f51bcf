// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/sdk"
)

// twoControllers is the diamond with two of them; echo is at r4 alone.
func twoControllers(t *testing.T, test func(m *memory)) {
	t.Helper()
	inMemory(t, func(m *memory) {
		m.diamond()
		m.service(ginnel.Service{ID: "far"}, "r4", "tcp:server:80")
		m.controller("c1")
		m.controller("c2")
		m.wait(20 * time.Second)
		test(m)
	})
}

// blindFor keeps a controller and a router from hearing each other.
func (m *memory) blindFor(controller, router string) {
	m.net.Silence(controller, router)
	m.net.Silence(router, controller)
}

// saidBy counts the dials that a controller ended with a code.
func (m *memory) saidBy(id string, code ginnel.Code) (n int) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.by == id && ev.Event == api.EventDial && ev.Code == code {
			n++
		}
	}
	return n
}

// TestControllerThatDoesNotSeeARouter cuts one of two controllers off from the router
// where circuits end. Whichever is asked first, every dial comes through: before that
// controller has noticed and after; and what neither sees is refused as before.
func TestControllerThatDoesNotSeeARouter(t *testing.T) {
	twoControllers(t, func(m *memory) {
		var clients []*sdk.Client // so many that either is asked first by some
		for range 32 {
			clients = append(clients, m.client("alice"))
		}
		m.blindFor("c2", "r4")
		for _, seen := range []ginnel.Code{ginnel.RouterResponseTimeout, ginnel.NoOnlineTerminators} {
			for _, c := range clients[:len(clients)/2] {
				m.across(c, "far")
			}
			clients = clients[len(clients)/2:]
			if m.saidBy("c2", seen) == 0 {
				m.Errorf("c2 has never said %v: that tests nothing", seen)
			}
			m.wait(20 * time.Second)
		}
		m.blindFor("c1", "r4")
		m.wait(20 * time.Second)
		began := time.Now()
		_, err := m.dial(m.client("alice"), "far", dialTime, sdk.DialOptions{})
		if took := time.Since(began) - 3*time.Second; !errors.Is(err, ginnel.NoOnlineTerminators) || took > 100*time.Millisecond {
			m.Errorf("after %v: %v", took, err)
		}
	})
}

// TestResumeOverTheControllerThatSees has circuits look for another path while one of
// two controllers does not see the router where they end.
func TestResumeOverTheControllerThatSees(t *testing.T) {
	twoControllers(t, func(m *memory) {
		var conns []*sdk.Conn
		for range 8 {
			conn, err := m.dial(m.client("alice"), "far", dialTime, sdk.DialOptions{})
			m.must(err)
			m.says(conn, "hello")
			conns = append(conns, conn)
		}
		m.blindFor("c2", "r4")
		m.wait(20 * time.Second)
		for _, transit := range []string{"r2", "r3"} { // whichever way they went
			m.part("r1", transit)
			began := time.Now()
			for _, conn := range conns {
				m.says(conn, "without "+transit)
			}
			if took := time.Since(began); took > 10*time.Second {
				m.Errorf("without %s it took %v", transit, took)
			}
			m.net.Resume("r1", transit)
			m.net.Resume(transit, "r1")
			m.wait(10 * time.Second)
		}
	})
}

// TestEdgeRouterWithoutLinks cuts the nearest of two edge routers off from all others,
// not from clients and controllers: dials and running circuits go over the other one,
// and what is at none of them is refused as soon as before.
func TestEdgeRouterWithoutLinks(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.diamond()
		m.identity("alice", "r1", "r3")
		m.net.SetLatency("alice", "r3", 30*time.Millisecond)
		m.service(ginnel.Service{ID: "far"}, "r4", "tcp:server:80")
		m.service(ginnel.Service{ID: "island"}, "r2", "tcp:server:80")
		m.controller("c1")
		m.controller("c2")
		m.wait(20 * time.Second)
		alice := m.client("alice")
		conn, err := m.dial(alice, "far", dialTime, sdk.DialOptions{Explain: true})
		m.must(err)
		m.says(conn, "hello")
		if path := conn.Explain().Path; path[0] != "r1" {
			m.Fatalf("entered over %v", path)
		}
		m.part("r1", "r2")
		m.part("r1", "r3")
		m.part("r2", "r4")
		began := time.Now()
		m.says(conn, "over another edge router")
		if took := time.Since(began); took > 10*time.Second {
			m.Errorf("it took %v", took)
		}
		if path := m.across(alice, "far"); path[0] != "r3" {
			m.Errorf("a dial entered over %v", path)
		}
		began = time.Now()
		_, err = m.dial(alice, "island", dialTime, sdk.DialOptions{})
		if took := time.Since(began); !errors.Is(err, ginnel.NoPath) || took > 200*time.Millisecond {
			m.Errorf("after %v: %v", took, err)
		}
	})
}
