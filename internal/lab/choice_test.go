// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// choices has a service of each strategy, with two terminators beside which paths
// and open circuits cost next to nothing, and one with two instances.
const choices = `
controllers: [{name: c1}, {name: c2}]
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services:
  - {name: smartrouting, terminators: [{router: r2, address: "tcp:ECHO", cost: 1000000}, {router: r2, address: "tcp:ECHO", cost: 3000000}]}
  - {name: weighted, strategy: weighted, terminators: [{router: r2, address: "tcp:ECHO", cost: 1000000}, {router: r2, address: "tcp:ECHO", cost: 3000000}]}
  - {name: random, strategy: random, terminators: [{router: r2, address: "tcp:ECHO", cost: 1000000}, {router: r2, address: "tcp:ECHO", cost: 3000000}]}
  - {name: sticky, strategy: sticky, terminators: [{router: r2, address: "tcp:ECHO", cost: 1000000}, {router: r2, address: "tcp:ECHO", cost: 3000000}]}
  - name: named
    terminators:
      - {router: r2, address: "tcp:ECHO", instance: one}
      - {router: r2, address: "tcp:ECHO", instance: two, cost: 1000000}
policies: [{kind: dial, identities: ["#staff"], services: ["#all"]}]
`

// chosen gives the terminator that a dial got.
func chosen(conn *sdk.Conn) ginnel.TerminatorID {
	for _, c := range conn.Explain().Candidates {
		if c.Chosen {
			return c.Terminator
		}
	}
	return ""
}

// ask dials and gives the terminator and the token.
func (w *world) ask(c *sdk.Client, service string, opts sdk.DialOptions) (ginnel.TerminatorID, string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	opts.Explain = true
	conn, err := c.DialService(ctx, ginnel.ServiceID(service), opts)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = conn.Close() }()
	return chosen(conn), conn.Sticky(), echo(conn, "hello")
}

// TestStrategies counts who gets the dials of each strategy. A share may be off by
// five times its standard deviation.
func TestStrategies(t *testing.T) {
	t.Parallel()
	w := open(t, choices, lab.Options{Plain: true})
	client := w.client("alice")
	for service, want := range map[string]float64{"smartrouting": 1, "weighted": 0.75, "random": 0.5} {
		const dials = 80
		first := 0
		for range dials {
			got, _, err := w.ask(client, service, sdk.DialOptions{})
			w.must(err)
			if got == ginnel.TerminatorID(service+"@r2") {
				first++
			}
		}
		share, bound := float64(first)/dials, 5*math.Sqrt(want*(1-want)/dials)
		if math.Abs(share-want) > bound {
			t.Errorf("%s: the cheap one got %.2f of the dials, want %.2f within %.2f", service, share, want, bound)
		}
	}
}

// TestSticky comes back to the terminator that it had, though another is cheaper
// by now, whichever controller answers, as long as the terminator is there.
func TestSticky(t *testing.T) {
	t.Parallel()
	w := open(t, choices, lab.Options{Plain: true})
	client := w.client("alice")
	first, token, err := w.ask(client, "sticky", sdk.DialOptions{})
	w.must(err)
	if first != "sticky@r2" || token == "" {
		t.Fatalf("got %s, token %q", first, token)
	}
	old, err := w.admin().Terminators.Get(t.Context(), string(first))
	w.must(err)
	change := old.Terminator
	change.StaticCost = ginnel.Units(9_000_000)
	w.must(w.admin().Terminators.Update(t.Context(), string(first), change))
	want := func(what, token string, want ginnel.TerminatorID) {
		t.Helper()
		w.eventually(func() error {
			got, _, err := w.ask(client, "sticky", sdk.DialOptions{Sticky: token})
			if err == nil && got != want {
				err = fmt.Errorf("%s: got %s, want %s", what, got, want)
			}
			return err
		})
	}
	want("without a token", "", "sticky@r2-2")
	for range 10 {
		if got, again, err := w.ask(client, "sticky", sdk.DialOptions{Sticky: token}); err != nil || got != first || again != token {
			t.Fatalf("got %s, token %q, %v", got, again, err)
		}
	}
	for _, name := range []string{"c1", "c2"} {
		w.must(w.Kill(name))
		want("without "+name, token, first)
		w.must(w.Start(name))
		w.ready()
	}
	w.must(w.admin().Terminators.Delete(t.Context(), string(first)))
	want("when it is gone", token, "sticky@r2-2")
	if _, _, err := w.ask(client, "sticky", sdk.DialOptions{Sticky: "nonsense"}); err != nil {
		t.Errorf("a token of nobody: %v", err)
	}
}

// TestInstances gets the instance that it asks for, and no other.
func TestInstances(t *testing.T) {
	t.Parallel()
	w := open(t, choices, lab.Options{Plain: true})
	client := w.client("alice")
	for instance, want := range map[string]ginnel.TerminatorID{"": "named@r2", "one": "named@r2", "two": "named@r2-2"} {
		if got, _, err := w.ask(client, "named", sdk.DialOptions{Instance: instance}); err != nil || got != want {
			t.Errorf("instance %q: got %s, %v, want %s", instance, got, err, want)
		}
	}
	_, _, err := w.ask(client, "named", sdk.DialOptions{Instance: "three"})
	w.wantCode(err, ginnel.NoTerminatorForInstance)
}

// TestHostChecksItsTarget stops the server behind the better of two hosts: dials go
// to the other one before any has failed, and come back with the server.
func TestHostChecksItsTarget(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	w := open(t, fmt.Sprintf(`
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, edgeRouters: [r1]}, {name: bob, edgeRouters: [r2]}, {name: carol, edgeRouters: [r2]}]
services: [{name: web}]
hosts:
  - {identity: bob, service: web, address: "tcp:%s", precedence: required, check: {kind: tcp, interval: 1s, timeout: 500ms, failures: 2, successes: 1}}
  - {identity: carol, service: web, address: "tcp:ECHO"}
policies: [{kind: dial, identities: ["@alice"], services: ["@web"]}]
`, address), lab.Options{Plain: true})
	state := func(unhealthy bool, effective ginnel.Precedence) func() error {
		return func() error {
			for _, n := range w.terminators("c1", "web") {
				switch {
				case n.Host == "carol" && (n.Checked || n.Unhealthy):
					return fmt.Errorf("carol's is checked: %+v", n)
				case n.Host == "bob" && (!n.Checked || n.Unhealthy != unhealthy || n.Effective != effective || n.Precedence != ginnel.Required):
					return fmt.Errorf("bob's: %+v", n)
				}
			}
			return nil
		}
	}
	w.bound("web", 2)
	w.eventually(state(false, ginnel.Required))
	w.must(l.Close())
	w.eventually(state(true, ginnel.Failed))
	conn := w.connect(w.client("alice"), "web")
	if got := conn.Peer().ID; got != "carol" {
		t.Errorf("%s answers while bob's server is down", got)
	}
	w.must(echo(conn, "from the one that is well"))
	if l, err = net.Listen("tcp", address); err != nil {
		t.Skipf("somebody else took the port: %v", err)
	}
	defer func() { _ = l.Close() }()
	w.eventually(state(false, ginnel.Required))
}

// quiesced makes a router take no new circuits, or take them again.
func (w *world) quiesced(router string, is bool) {
	w.t.Helper()
	r, err := w.admin().Routers.Get(w.t.Context(), router)
	w.must(err)
	w.must(w.admin().Routers.Update(w.t.Context(), router, routerOf(r.Router, func(r *ginnel.Router) { r.Quiesced = is })))
}

// TestQuiesce takes a router out of new circuits as transit, ingress and egress;
// what runs stays, and it holds when router or controller start anew.
func TestQuiesce(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.clientAt("alice", "r1")
	old := w.connectOver(client, "echo", "r1", "r2", "r4")
	w.quiesced("r2", true)
	around := w.connectOver(client, "echo", "r1", "r3", "r4")
	over := func(conn *sdk.Conn, router ginnel.RouterID) {
		t.Helper()
		w.must(echo(conn, "still here"))
		w.eventually(func() error { // what routers tell comes in its time
			c, err := w.admin().Circuits.GetCircuit(t.Context(), string(conn.Circuit()))
			if err == nil && (len(c.Path) != 3 || c.Path[1] != router || c.Generation >= 256) {
				err = fmt.Errorf("circuit: %+v: want it over %s as at first", c, router)
			}
			return err
		})
	}
	over(old, "r2")
	over(around, "r3")
	for _, node := range []string{"c1", "r2"} {
		w.must(w.Kill(node))
		w.must(w.Start(node))
		w.ready()
		if node == "c1" {
			w.must(echo(old, "a controller more or less"))
		}
		w.connectOver(client, "echo", "r1", "r3", "r4")
		for range 3 {
			if path := w.dialable(client, "echo"); path[1] != "r3" {
				t.Errorf("after %s started anew: new circuit over %v", node, path)
			}
		}
		w.must(echo(old, "still here, or here again"))
	}
	w.quiesced("r2", false)
	w.connectOver(client, "echo", "r1", "r2", "r4")

	w.quiesced("r4", true) // the only egress of echo; bob is at r3 as well
	w.eventually(func() error {
		conn, err := w.dial(client, "echo")
		if err == nil {
			_ = conn.Close()
			return fmt.Errorf("a new circuit ends at a quiesced router")
		}
		w.wantCode(err, ginnel.NoOnlineTerminators)
		return nil
	})
	w.must(echo(around, "the egress keeps it"))
	if path := w.dialable(client, "hosted"); path[len(path)-1] != "r3" {
		t.Errorf("hosted at %v", path)
	}
	w.quiesced("r4", false)

	w.quiesced("r1", true)
	w.eventually(func() error {
		conn, err := w.dial(client, "echo")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if path := conn.Explain().Path; path[0] != "r3" {
			return errPath(path)
		}
		return nil
	})
	w.must(echo(around, "the ingress keeps it"))
}

// TestL43_MovesOnceWithoutLoss raises the cost of the transit router under a bulk
// transfer and an idle circuit: both move once, and not a byte is lost.
func TestL43_MovesOnceWithoutLoss(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{Plain: true})
	client := w.clientAt("alice", "r1")
	idle := w.connectOver(client, "hosted", "r1", "r2", "r4")
	busy := w.connectOver(client, "hosted", "r1", "r2", "r4")
	moved := func(conn *sdk.Conn) error {
		c, err := w.admin().Circuits.GetCircuit(t.Context(), string(conn.Circuit()))
		switch {
		case err != nil:
			return err
		case c.Path[1] != "r3":
			return errPath(c.Path)
		case c.Generation/256 != 1:
			t.Errorf("circuit %s has resumed %d times", c.ID, c.Generation/256)
		}
		return nil
	}
	_, err := transfer(busy, bulk, func() error {
		r, err := w.admin().Routers.Get(t.Context(), "r2")
		w.must(err)
		raised := routerOf(r.Router, func(r *ginnel.Router) { r.Cost = ginnel.Units(100_000) })
		w.must(w.admin().Routers.Update(t.Context(), "r2", raised))
		w.eventually(func() error { return moved(busy) })
		return nil
	})
	w.must(err)
	w.eventually(func() error { return moved(idle) })
	for range 20 {
		w.must(echo(idle, "on the new path"))
		w.must(moved(idle))
	}
}

// routerOf gives what an operator writes to change a router.
func routerOf(r ginnel.Router, change func(*ginnel.Router)) api.RouterCreate {
	change(&r)
	return api.RouterCreate{Router: r}
}
