// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestDialRefused(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for _, tc := range []struct {
		name   string
		change func(d *wire.Dial)
		code   ginnel.Code
		says   string
	}{
		{"no such service", func(d *wire.Dial) { d.Service = "none" }, ginnel.InvalidService, `"none"`},
		{"another network", func(d *wire.Dial) { d.Network = "other" }, ginnel.NotAuthenticated, "network"},
		{"no audience", func(d *wire.Dial) { d.Audience = nil }, ginnel.NotAuthenticated, "signed for controller"},
		{"no nonce", func(d *wire.Dial) { d.Audience.Nonce = nil }, ginnel.NotAuthenticated, "nonce"},
		{"too many early bytes", func(d *wire.Dial) { d.Early = make([]byte, wire.MaxEarlyOut+1) }, ginnel.NotAuthenticated, "early"},
		{"long instance", func(d *wire.Dial) { d.Instance = long }, ginnel.NotAuthenticated, "text"},
		{"long destination", func(d *wire.Dial) { d.Destination = long }, ginnel.NotAuthenticated, "text"},
		{"no time left", func(d *wire.Dial) { d.DeadlineMs = 100 }, ginnel.DeadlineExceeded, "left"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
				if err := w.dial(tc.change).failure(tc.code); !strings.Contains(err.Message, tc.says) {
					t.Errorf("got %q, want it to say %q", err.Message, tc.says)
				}
				w.wantIdle()
			})
		})
	}
}

// A missing policy is named by its kind.
func TestDialNotAuthorized(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		d := &wire.Dial{Network: "acme", Service: "web", Router: "A", Audience: w.audience()}
		if err := w.request("mallory", w.nodes["A"], w.sign("mallory", wire.DomainDial, d)).failure(ginnel.NotAuthorized); !strings.Contains(err.Message, "no dial policy") {
			t.Errorf("got %q", err.Message)
		}
		d = &wire.Dial{Network: "acme", Service: "web", Router: "D", Audience: w.audience()}
		if err := w.request("alice", w.nodes["D"], w.sign("alice", wire.DomainDial, d)).failure(ginnel.NotAuthorized); !strings.Contains(err.Message, "no edge-router policy") {
			t.Errorf("got %q", err.Message)
		}
		w.update(func(tx *store.Tx) error { return tx.Policies().Delete("d") })
		w.dial(nil).failure(ginnel.NotAuthorized)
	})
}

// A quiesced router takes no dial, but the circuits that run may be resumed over
// it and to it.
func TestQuiescedIngress(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		running := w.dial(nil).response()
		w.quiesce("A")
		if err := w.dial(nil).failure(ginnel.EdgeRouterUnavailable); !strings.Contains(err.Message, "router A is quiesced") {
			t.Errorf("got %q", err.Message)
		}
		w.quiesce("C")
		w.resume(running.GetTicket(), 1).response()
		w.update(func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: "A"}) })
		w.dial(nil).response()
	})
}

func TestDialOfLostIdentity(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(i *ginnel.Identity)
	}{
		{"disabled", func(i *ginnel.Identity) { i.Disabled = true }},
		{"another key", func(i *ginnel.Identity) { i.Key = "00" }},
		{"not enrolled", func(i *ginnel.Identity) { i.Key = "" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
				w.update(func(tx *store.Tx) error {
					i, err := tx.Identities().Get("alice")
					if err != nil {
						return err
					}
					tc.change(&i)
					return tx.Identities().Put(i)
				})
				w.dial(nil).failure(ginnel.NotAuthenticated)
			})
		})
	}
}

// What a compromised ingress router can do with an identity's name: nothing.
func TestL49_CompromisedRouter(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		good := w.dial(nil)
		good.response()
		refused := func(name string, at ginnel.RouterID, as string, signed *wire.Signed) {
			t.Helper()
			if f := w.request(as, w.nodes[at], signed).answer().GetFailure(); ginnel.Code(f.GetCode()) != ginnel.NotAuthenticated {
				t.Errorf("%s: got %v", name, f)
			}
		}
		fresh := func() *wire.Dial {
			return &wire.Dial{Network: "acme", Service: "web", Router: "A", Audience: w.audience()}
		}
		changed := func(signed *wire.Signed, change func(s *wire.Signed)) *wire.Signed {
			s := proto.CloneOf(signed)
			change(s)
			return s
		}
		refused("replayed", "A", "alice", good.dial)
		refused("replayed at another router", "B", "alice", good.dial)
		refused("signed by its own key", "A", "alice", mustSignAs(t, w, ginnel.RoleRouter, "A", fresh()))
		refused("signed by a controller", "A", "alice", mustSignAs(t, w, ginnel.RoleController, "ctrl2", fresh()))
		refused("signed by another identity", "A", "alice", w.sign("mallory", wire.DomainDial, fresh()))
		refused("passed on as another identity's", "A", "mallory", w.sign("alice", wire.DomainDial, fresh()))
		refused("passed on as nobody's", "A", "", w.sign("alice", wire.DomainDial, fresh()))
		refused("a signature for something else", "A", "alice", w.sign("alice", wire.DomainResume, fresh()))
		refused("alice's leaf, mallory's signature", "A", "alice", changed(w.sign("mallory", wire.DomainDial, fresh()), func(s *wire.Signed) { s.Leaf = good.dial.GetLeaf() }))
		refused("another payload", "A", "alice", changed(w.sign("alice", wire.DomainDial, fresh()), func(s *wire.Signed) { s.Payload = good.dial.GetPayload() }))
		refused("nothing", "A", "alice", nil)
		if n := w.c.noted(t, faultClaim); n != 3 {
			t.Errorf("%d lies about who dials were noted, want 3", n)
		}
		w.wantRows("A", "B", "C")
		w.wantIdle()
	})
}

func mustSignAs(t *testing.T, w *circuitWorld, role ginnel.Role, id string, d *wire.Dial) *wire.Signed {
	t.Helper()
	w.ids["as"] = w.credential(role, id)
	return w.sign("as", wire.DomainDial, d)
}

func TestL109_WrongAudience(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(a *wire.Audience)
	}{
		{"another controller", func(a *wire.Audience) { a.Controller = "ctrl2" }},
		{"an earlier life", func(a *wire.Audience) { a.Boot = "boot0" }},
		{"a moment more than a minute ago", func(a *wire.Audience) { a.Clock -= time.Minute.Nanoseconds() + 1 }},
		{"a minute ago", func(a *wire.Audience) { a.Clock -= (time.Minute + time.Second).Nanoseconds() }},
		{"in a minute", func(a *wire.Audience) { a.Clock += (time.Minute + time.Second).Nanoseconds() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
				f := w.dial(func(d *wire.Dial) { tc.change(d.GetAudience()) }).answer().GetFailure()
				if ginnel.Code(f.GetCode()) != ginnel.NotAuthenticated {
					t.Fatalf("got %v", f)
				}
				right := f.GetAudience()
				if right.GetId() != "ctrl1" || right.GetBoot() != "boot1" || right.GetClock() != time.Now().UnixNano() {
					t.Errorf("the right audience is said to be %v", right)
				}
				w.dial(func(d *wire.Dial) { d.Audience.Clock = right.GetClock() }).response()
			})
		})
	}
}

// A clock that is off by a minute, either way, is good enough.
func TestClockWithinTheMinute(t *testing.T) {
	for _, off := range []time.Duration{-time.Minute, time.Minute} {
		inCircuitWorld(t, func(_ *testing.T, w *circuitWorld) {
			w.dial(func(d *wire.Dial) { d.Audience.Clock += off.Nanoseconds() }).response()
		})
	}
}

// The same Dial is good once within the time for which its clock is, and not
// at all later.
func TestL109_ReplayLater(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		c := w.dial(nil)
		c.response()
		for range 10 {
			time.Sleep(20 * time.Second)
			w.request("alice", w.nodes["A"], c.dial).failure(ginnel.NotAuthenticated)
		}
	})
}

// While the controller is behind its store, what it would refuse waits for the store,
// BUSY in the end. One identity that asks for it without end has its own places only,
// and gets them back.
func TestRefusalsWaitForTheStore(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.backend.SetFrozen(true)
		if _, ok, err := w.backend.Commit(t.Context(), nil, []store.Write{{Key: "/ginnel/1/service/new", Value: []byte(`{"id":"new"}`)}}); err != nil || !ok {
			t.Fatal(ok, err)
		}
		ask := func(who, service string) *call {
			return w.request(who, w.nodes["A"], w.sign(who, wire.DomainDial, &wire.Dial{
				Network: "acme", Service: service, Router: "A", Audience: w.audience(), DeadlineMs: 10_000,
			}))
		}
		var crowd []*call
		for range 2 * maxSetupsPerIdentity {
			crowd = append(crowd, ask("mallory", "web"))
		}
		waiting := func() (n int) {
			synctest.Wait()
			w.nodes["A"].mu.Lock()
			defer w.nodes["A"].mu.Unlock()
			for _, c := range crowd {
				if w.nodes["A"].answers[c.id] == nil {
					n++
				}
			}
			return n
		}
		if n := waiting(); n != maxSetupsPerIdentity {
			t.Errorf("%d wait, want %d", n, maxSetupsPerIdentity)
		}
		ask("alice", "web").response()
		soon, late := ask("alice", "new"), ask("alice", "none")
		time.Sleep(sureTime)
		for _, c := range append(crowd, soon, late) {
			c.failure(ginnel.Busy)
		}
		soon, late = ask("alice", "new"), ask("alice", "none")
		time.Sleep(sureTime / 2)
		w.backend.SetFrozen(false)
		soon.failure(ginnel.NoTerminators) // it is there, and may be dialed
		late.failure(ginnel.InvalidService)
		if took := time.Since(late.started); took != sureTime/2 {
			t.Errorf("took %v", took)
		}
		ask("mallory", "web").failure(ginnel.NotAuthorized)
		w.wantIdle()
	})
}

func TestNoticeGetsNoAnswer(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.cs.dialRequest(w.nodes["A"], &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{}}})
		synctest.Wait()
		if len(w.nodes["A"].answers) != 0 {
			t.Errorf("answers %v", w.nodes["A"].answers)
		}
		w.wantIdle()
	})
}
