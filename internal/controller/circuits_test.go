// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// wantRows checks which routers hold rows.
func (w *circuitWorld) wantRows(want ...string) {
	w.t.Helper()
	if got := w.rowsHeld(); !slices.Equal(got, want) {
		w.t.Errorf("rows are held by %v, want %v", got, want)
	}
}

func TestDial(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		c := w.dial(func(d *wire.Dial) { d.Source, d.Destination = "10.0.0.1:4000", "web.internal:80" })
		r := c.response()
		if got, want := strings.Join(r.GetPath(), " "), "A B C"; got != want {
			t.Errorf("path %s, want %s", got, want)
		}
		if string(r.GetEarly()) != "hello from C" || r.GetGeneration() != 1 || len(r.GetCircuit()) != 10 || r.GetExplain() != nil {
			t.Errorf("response %v", r)
		}
		ticket, err := pki.OpenTicket(r.GetTicket(), w.ca.Cert, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := pki.CheckTicketForClient(ticket, "acme", "alice", "web", pki.DialHash(c.dial.GetPayload())); err != nil {
			t.Error(err)
		}
		if err := pki.CheckTicketForPeer(ticket, "acme", ginnel.Peer{Role: ginnel.RoleRouter, ID: "C"}, func(id ginnel.TerminatorID) bool { return id == "t1" }); err != nil {
			t.Error(err)
		}
		if ticket.GetCircuit() != r.GetCircuit() || ticket.GetRevision() != int64(w.c.store.View().Revision()) {
			t.Errorf("ticket %v", ticket)
		}

		a, b, e := w.nodes["A"].routes()[0], w.nodes["B"].routes()[0], w.nodes["C"].routes()[0]
		if a.GetDownOut() != b.GetUpIn() || a.GetDownIn() != b.GetUpOut() || b.GetDownOut() != e.GetUpIn() || b.GetDownIn() != e.GetUpOut() {
			t.Errorf("labels do not meet: %v, %v, %v", a, b, e)
		}
		if a.GetIngress().GetRequest() != c.id || !proto.Equal(a.GetIngress().GetTicket(), r.GetTicket()) || b.GetIngress() != nil || b.GetEgress() != nil {
			t.Errorf("ingress route %v, transit route %v", a, b)
		}
		x := e.GetEgress()
		if x.GetTerminator() != "t1" || string(x.GetEarly()) != "client hello" || !proto.Equal(x.GetTicket(), r.GetTicket()) ||
			x.GetResume() || x.GetConnectMs() == 0 || x.GetConnectMs() >= e.GetDeadlineMs() {
			t.Errorf("egress %v in a route with deadline %d", x, e.GetDeadlineMs())
		}
		var decided wire.Ticket
		if err := proto.Unmarshal(x.GetTicket().GetPayload(), &decided); err != nil ||
			decided.GetSource() != "10.0.0.1:4000" || decided.GetDestination() != "web.internal:80" {
			t.Errorf("ticket %v, %v: want what the client says of its program", &decided, err)
		}
		w.wantRows("A", "B", "C")
		w.wantIdle()
	})
}

// wantIdle checks that nothing is left of set-ups.
func (w *circuitWorld) wantIdle() {
	w.t.Helper()
	synctest.Wait()
	cs := w.cs
	if n := len(cs.setups) + len(cs.requests) + len(cs.deadlines) + len(cs.inFlight.at) + cs.gate.len() + len(cs.gate.of) + len(cs.gate.ofClient); n != 0 {
		w.t.Errorf("left over: set-ups %v, requests %v, in flight %v, gate %d", cs.setups, cs.requests, cs.inFlight.at, cs.gate.len())
	}
}

func TestDialAtOneRouter(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.terminator("t0", "A", 0)
		r := w.dial(nil).response()
		route := w.nodes["A"].routes()[0]
		if len(r.GetPath()) != 1 || route.GetIngress() == nil || route.GetEgress() == nil {
			t.Errorf("response %v, route %v", r, route)
		}
	})
}

func TestDialExplained(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["B"].set(after(time.Millisecond, refuse(ginnel.RouterErrResourcesNotAvailable)))
		x := w.dial(func(d *wire.Dial) { d.Explain = true }).response().GetExplain()
		var text strings.Builder
		for _, c := range x.GetCandidates() {
			fmt.Fprintf(&text, "%s %s %d+%d+%d=%d %v\n", c.GetTerminator(), c.GetPrecedence(), c.GetStaticCost(), c.GetDynamicCost(), c.GetPathCost(), c.GetTotalCost(), c.GetChosen())
		}
		for _, h := range x.GetHops() {
			fmt.Fprintf(&text, "%s over %q for %d\n", h.GetRouter(), h.GetLink(), h.GetCost())
		}
		for _, p := range x.GetPhases() {
			fmt.Fprintf(&text, "%s: %s\n", p.GetName(), p.GetDetail())
		}
		want := `t1 default 0+0+30000000=30000000 true
t2 default 100000000+0+15000000=115000000 false
A over "" for 0
D over "A/D/0" for 15000000
C over "C/D/0" for 15000000
verify: signature, audience, policy
queue: waited for its turn
attempt 1: t1 over [A B C]: ROUTER_ERR_RESOURCES_NOT_AVAILABLE: router B refuses
attempt 1 route A: answered
attempt 1 route B: refused
attempt 1 route C: answered
decide: candidates, path, costs, ticket of the last attempt
attempt 2: t1 over [A D C]: up
attempt 2 route A: answered
attempt 2 route D: answered
attempt 2 route C: answered
`
		if text.String() != want {
			t.Errorf("got\n%swant\n%s", text.String(), want)
		}
	})
}

func TestSticky(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.update(func(tx *store.Tx) error { return tx.Services().Put(ginnel.Service{ID: "web", Strategy: ginnel.Sticky}) })
		if r := w.dial(nil).response(); r.GetSticky() != "t1" {
			t.Errorf("sticky %q, want t1", r.GetSticky())
		}
		if r := w.dial(func(d *wire.Dial) { d.Sticky = "t2" }).response(); r.GetSticky() != "t2" || !slices.Equal(r.GetPath(), []string{"A", "D"}) {
			t.Errorf("sticky %q over %v, want t2", r.GetSticky(), r.GetPath())
		}
		w.dial(func(d *wire.Dial) { d.Instance = "blue" }).failure(ginnel.NoTerminatorForInstance)
	})
}

// Set-ups in flight make a terminator dearer, and cost nothing once they end.
func TestInFlightCosts(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.candidate = nil
		w.terminator("t1", "C", 0)
		w.terminator("t2", "C", 3) // dearer than one set-up at t1, cheaper than two
		w.nodes["C"].set(hang)
		var calls []*call
		for range 3 {
			calls = append(calls, w.dial(func(d *wire.Dial) { d.DeadlineMs = 2000 }))
			synctest.Wait()
		}
		var used []string
		for _, r := range w.nodes["C"].routes() {
			used = append(used, r.GetEgress().GetTerminator())
		}
		if want := []string{"t1", "t1", "t2"}; !slices.Equal(used, want) {
			t.Errorf("terminators %v, want %v", used, want)
		}
		for _, c := range calls {
			c.failure(ginnel.RouterResponseTimeout)
		}
		w.wantIdle()
		w.wantRows()
	})
}

func TestL30_AnswersCountPerAttempt(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["B"].set(silent)
		r := w.dial(nil).response()
		if got := strings.Join(r.GetPath(), " "); got != "A D C" || r.GetGeneration() != 2 {
			t.Errorf("path %s, generation %d, want A D C, 2", got, r.GetGeneration())
		}
		w.wantRows("A", "C", "D")
	})
}

func TestL31_AnotherTerminatorNext(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["C"].set(refuse(ginnel.RouterErrConnRefused))
		r := w.dial(nil).response()
		if got := strings.Join(r.GetPath(), " "); got != "A D" {
			t.Errorf("path %s, want A D, where t2 is", got)
		}
		w.wantRows("A", "D")
	})
}

func TestL31_AnotherLinkNext(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["B"].set(silent)
		c := w.dial(nil)
		synctest.Wait()
		w.cs.linkGone("B", "B/C/0")
		if r := c.response(); !slices.Equal(r.GetPath(), []string{"A", "D", "C"}) || time.Since(c.started) >= time.Second {
			t.Errorf("path %v after %v", r.GetPath(), time.Since(c.started))
		}
		w.wantRows("A", "C", "D")
	})
}

// A black hole behind the egress: its own time-out comes before the client's.
func TestL32_BlackHole(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.candidate = w.candidate[:1]
		w.nodes["C"].set(func(r *fakeRouter, route *wire.Route) {
			r.connecting(route)
			after(time.Duration(route.GetEgress().GetConnectMs())*time.Millisecond, refuse(ginnel.RouterErrDialTimedOut))(r, route)
		})
		c := w.dial(func(d *wire.Dial) { d.DeadlineMs = 3000 })
		err := c.failure(ginnel.RouterErrDialTimedOut)
		if took := time.Since(c.started); took >= 3*time.Second || len(err.Attempts) != 1 {
			t.Errorf("after %v: %v, attempts %v", took, err, err.Attempts)
		}
		w.wantRows()
	})
}

func TestL33_SendFailsAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		code ginnel.Code
	}{
		{"queue full", fmt.Errorf("router B: %w", transport.ErrQueueFull), ginnel.RouterErrResourcesNotAvailable},
		{"channel closed", errors.New("closed"), ginnel.RouterResponseTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
				w.nodes["B"].broken = tc.err
				w.links = w.links[:2] // no way round
				w.candidate = w.candidate[:1]
				w.publish()
				c := w.dial(nil)
				err := c.failure(tc.code)
				if time.Since(c.started) > time.Millisecond || !strings.Contains(err.Message, "router B") {
					t.Errorf("after %v: %v", time.Since(c.started), err)
				}
				w.wantRows()
				w.wantIdle()

				// However often that is tried, nothing is used up for good.
				for range 4 {
					w.nodes["C"].grant(200) // as it does for those that it saw
					for range 200 {
						w.dial(nil).failure(tc.code)
					}
					time.Sleep(labelRest + 10*time.Second)
				}
				w.nodes["B"].mu.Lock()
				w.nodes["B"].broken = nil
				w.nodes["B"].mu.Unlock()
				w.dial(nil).response()
			})
		})
	}
}

// The router's own refusal for want of room goes to the caller as it is.
func TestL33_RouterIsFull(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["A"].set(refuse(ginnel.RouterErrResourcesNotAvailable))
		c := w.dial(nil)
		c.failure(ginnel.RouterErrResourcesNotAvailable)
		if time.Since(c.started) > time.Millisecond {
			t.Errorf("took %v", time.Since(c.started))
		}
		w.wantRows()
	})
}

func TestL36_LateSuccess(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		var late *wire.Route
		w.nodes["B"].set(func(_ *fakeRouter, route *wire.Route) { late = route })
		w.nodes["D"].set(func(r *fakeRouter, route *wire.Route) {
			time.AfterFunc(500*time.Millisecond, func() { r.result(route, nil, nil) })
		})
		c := w.dial(nil)
		time.Sleep(1200 * time.Millisecond) // attempt 2 runs
		b := w.nodes["B"]
		b.mu.Lock()
		b.held[routeOf{late.GetCircuit(), late.GetGeneration()}] = late // it came to life after the Unroute
		b.mu.Unlock()
		b.result(late, nil, nil)
		synctest.Wait()
		if b.rows() != 0 {
			t.Error("the late success was not unrouted at once")
		}
		if r := c.response(); r.GetGeneration() != 2 {
			t.Errorf("generation %d, want 2", r.GetGeneration())
		}
		w.wantRows("A", "C", "D")
	})
}

func TestL37_NothingToGiveBack(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["B"].set(refuse(ginnel.RouterErrGeneric))
		w.nodes["D"].set(refuse(ginnel.RouterErrGeneric))
		for range 100 {
			w.dial(nil).failure(ginnel.RouterErrGeneric)
		}
		w.wantIdle()
		w.wantRows()
	})
}

func TestL38_ClientGivesUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(w *circuitWorld, c *call)
	}{
		{"cancel", func(w *circuitWorld, c *call) {
			w.cs.cancel(c.at, &wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: c.id}}})
		}},
		{"deadline", func(*circuitWorld, *call) { time.Sleep(2 * time.Second) }},
		{"edge router gone", func(w *circuitWorld, c *call) { w.cs.channelGone(c.at) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
				w.nodes["C"].set(hang)
				w.candidate = w.candidate[:1]
				c := w.dial(func(d *wire.Dial) { d.DeadlineMs = 2000 })
				synctest.Wait()
				w.wantRows("A", "B", "C")
				tc.do(w, c)
				if tc.name == "cancel" {
					c.failure(ginnel.Cancelled)
				}
				w.wantRows()
				w.wantIdle()
			})
		})
	}
}

// A cancel of another router, or of another request, ends nothing.
func TestCancelOfAnother(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["C"].set(hang)
		c := w.dial(nil)
		synctest.Wait()
		for _, from := range []ginnel.RouterID{"B", "A"} {
			id := c.id
			if from == "A" {
				id++
			}
			w.cs.cancel(w.nodes[from], &wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: id}}})
		}
		w.wantRows("A", "B", "C")
	})
}

func TestRouterGone(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["B"].set(silent)
		c := w.dial(nil)
		synctest.Wait()
		w.nodes["B"].away = true
		w.cs.channelGone(w.nodes["B"])
		if r := c.response(); !slices.Equal(r.GetPath(), []string{"A", "D", "C"}) || time.Since(c.started) > 100*time.Millisecond {
			t.Errorf("path %v after %v", r.GetPath(), time.Since(c.started))
		}
	})
}

// A controller that cannot tell the client takes the circuit back.
func TestResponseNotSent(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.nodes["C"].set(func(r *fakeRouter, route *wire.Route) {
			time.AfterFunc(time.Second/2, func() {
				w.nodes["A"].mu.Lock()
				w.nodes["A"].broken = errors.New("closed")
				w.nodes["A"].mu.Unlock()
				r.result(route, nil, nil)
			})
			r.connecting(route)
		})
		w.dial(nil)
		time.Sleep(time.Second)
		w.wantRows("A") // which cannot be told either
		w.wantIdle()
	})
}

func TestStartingControllerDoesNotLie(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.starting = true
		w.dial(nil).response()
		candidates := w.candidate
		w.candidate = nil
		if err := w.dial(nil).failure(ginnel.Busy); err.RetryAfter != ginnel.Duration(time.Second) {
			t.Errorf("retry after %v", err.RetryAfter)
		}
		w.dial(func(d *wire.Dial) { d.Service = "none" }).failure(ginnel.InvalidService)
		w.starting = false
		w.dial(nil).failure(ginnel.NoTerminators)
		w.candidate = candidates
		w.nodes["C"].away, w.nodes["D"].away = true, true
		w.publish()
		w.dial(nil).failure(ginnel.NoOnlineTerminators)
	})
}

func TestTooManySetups(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		for range maxSetupsPerRouter {
			if err := w.cs.gate.enter("A"); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.dial(nil).failure(ginnel.Busy); err.RetryAfter != ginnel.Duration(time.Second) {
			t.Errorf("retry after %v", err.RetryAfter)
		}
		if err := w.cs.gate.enter("B"); err != nil {
			t.Errorf("another router is refused as well: %v", err)
		}
		for range maxSetupsPerRouter {
			w.cs.gate.leave("A")
		}
		w.dial(nil).response()
	})
}

// Whatever fails, no router keeps a row of a circuit that is not up, and no
// label is given twice (see fakeRouter.take).
func TestRandomFailuresLeaveNothing(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		seed := mrand.Uint64()
		t.Logf("seed %d", seed)
		rng := mrand.New(mrand.NewPCG(seed, 7))
		loops := mrand.New(mrand.NewPCG(seed, 8)) // for the goroutine that sends
		up := make(map[string]bool)
		whatever := func(r *fakeRouter, route *wire.Route) {
			switch loops.IntN(8) {
			case 0:
				refuse(ginnel.RouterErrConnRefused)(r, route)
			case 1:
				refuse(ginnel.RouterErrInvalidLinkDestination)(r, route)
			case 2: // nothing
			case 3:
				hang(r, route)
			case 4:
				time.AfterFunc(time.Duration(loops.IntN(3000))*time.Millisecond, func() { r.result(route, nil, nil) })
			default:
				agree(r, route)
			}
		}
		var calls []*call
		const dials = 10_000
		for i := range dials {
			for _, r := range w.nodes {
				r.set(whatever)
				if i%50 == 0 {
					r.grant(200)
				}
			}
			c := w.dial(func(d *wire.Dial) { d.DeadlineMs = uint32(600 + rng.IntN(4000)) })
			calls = append(calls, c)
			if rng.IntN(10) == 0 {
				w.cs.cancel(c.at, &wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: c.id}}})
			}
			if rng.IntN(20) == 0 {
				w.cs.linkGone("A", w.links[rng.IntN(len(w.links))].ID)
			}
			if rng.IntN(4) == 0 {
				synctest.Wait()
				time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			}
		}
		for _, c := range calls {
			if r := c.answer().GetDialResponse(); r != nil {
				up[fmt.Sprint(r.GetCircuit(), r.GetGeneration())] = true
			}
		}
		time.Sleep(5 * time.Second)
		w.wantIdle()
		if len(up) < 50 || len(up) > dials*95/100 {
			t.Errorf("%d of %d dials succeeded: that tests nothing", len(up), dials)
		}
		for _, r := range w.nodes {
			for key := range r.held {
				if !up[fmt.Sprint(key.circuit, key.generation)] {
					t.Errorf("router %s keeps a row of circuit %s, generation %d, which is not up", r.name, key.circuit, key.generation)
				}
			}
		}
	})
}

func TestNoLabelsLeft(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		w.cs.labels.gone(w.nodes["C"])
		w.candidate = w.candidate[:1]
		c := w.dial(nil)
		err := c.failure(ginnel.RouterErrResourcesNotAvailable)
		if !strings.Contains(err.Message, "router C") || time.Since(c.started) > time.Millisecond {
			t.Errorf("after %v: %v", time.Since(c.started), err)
		}
		w.wantRows()
		w.nodes["C"].grant(1)
		w.dial(nil).response()
	})
}
