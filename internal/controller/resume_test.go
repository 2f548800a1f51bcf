// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// resume sends alice's resume of a circuit from router A.
func (w *circuitWorld) resume(ticket *wire.Signed, number uint32) *call {
	w.t.Helper()
	return w.resumeAs("alice", ticket, number)
}

func (w *circuitWorld) resumeAs(who string, ticket *wire.Signed, number uint32) *call {
	w.t.Helper()
	signed := w.sign(who, wire.DomainResume, &wire.Resume{Ticket: ticket, Number: number, Router: "A", Audience: w.audience(), DeadlineMs: 5000})
	w.lastReq++
	c := &call{w: w, at: w.nodes["A"], id: w.lastReq, started: time.Now()}
	w.cs.resumeRequest(c.at, &wire.Message{Id: c.id, Body: &wire.Message_ResumeRequest{ResumeRequest: &wire.ResumeRequest{Resume: signed, Identity: who}}})
	return c
}

// report makes a router report an end of a circuit.
func (w *circuitWorld) report(ticket *wire.Signed, at ginnel.RouterID, host bool, generation uint32, sequence uint64) *endpointRow {
	w.t.Helper()
	t, err := pki.ReopenTicket(ticket, w.ca.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	row := &endpointRow{
		endpointKey: endpointKey{ginnel.CircuitID(t.GetCircuit()), host}, router: at, generation: generation,
		signed: ticket, ticket: t, sequence: sequence,
	}
	if sequence > 0 {
		row.attach = &wire.Signed{} // verified when it was reported
	}
	w.rows = append(w.rows, row)
	return row
}

// hostedTicket dials a terminator of an SDK's at C and gives its ticket.
func (w *circuitWorld) hostedTicket() *wire.Signed {
	w.t.Helper()
	w.candidate = w.candidate[:1]
	w.candidate[0].Host = "mallory"
	return w.dial(nil).response().GetTicket()
}

func TestResume(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		first := w.dial(nil).response()
		w.candidate = nil // the circuit's end is where it is, whatever one would choose now
		w.nodes["B"].set(silent)
		r := w.resume(first.GetTicket(), 1).response()
		if r.GetCircuit() != first.GetCircuit() || r.GetGeneration() != 258 || !slices.Equal(r.GetPath(), []string{"A", "D", "C"}) || !proto.Equal(r.GetTicket(), first.GetTicket()) {
			t.Errorf("response %v", r)
		}
		routes := w.nodes["C"].routes()
		x := routes[len(routes)-1].GetEgress()
		if !x.GetResume() || x.GetTerminator() != "t1" || !proto.Equal(x.GetTicket(), first.GetTicket()) || len(x.GetEarly()) != 0 {
			t.Errorf("egress %v", x)
		}
		w.wantIdle()
	})
}

// A quiesced router is crossed by what runs only when there is no other path,
// and by nothing new.
func TestQuiescedTransit(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		w.quiesce("B")
		if got := w.resume(ticket, 1).response().GetPath(); !slices.Equal(got, []string{"A", "D", "C"}) {
			t.Errorf("resumed over %v while there is another path", got)
		}
		w.candidate = w.candidate[:1]
		if got := w.dial(nil).response().GetPath(); !slices.Equal(got, []string{"A", "D", "C"}) {
			t.Errorf("dialed over %v", got)
		}
		w.quiesce("D")
		if got := w.resume(ticket, 2).response().GetPath(); !slices.Equal(got, []string{"A", "B", "C"}) {
			t.Errorf("resumed over %v", got)
		}
		w.dial(nil).failure(ginnel.NoPath)
		w.wantIdle()
	})
}

// The host's end is at the router to which it attached last.
func TestResumeFindsTheHost(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.hostedTicket()
		for i, tc := range []struct {
			report func()
			want   string
		}{
			{func() {}, "C"},
			{func() { w.report(ticket, "D", true, 1, 7) }, "D"},
			{func() { w.report(ticket, "B", true, 1, 3) }, "D"},
			{func() { w.report(ticket, "B", true, 1, 8) }, "B"},
		} {
			tc.report()
			path := w.resume(ticket, uint32(i+1)).response().GetPath()
			if got := path[len(path)-1]; got != tc.want {
				t.Errorf("%d: resumed at %s, want %s", i, got, tc.want)
			}
		}
	})
}

// A router-hosted end stays where it is, whatever anybody attaches.
func TestResumeOfRouterHosted(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		w.report(ticket, "D", true, 1, 7)
		if path := w.resume(ticket, 1).response().GetPath(); path[len(path)-1] != "C" {
			t.Errorf("resumed over %v", path)
		}
	})
}

func TestResumeDetached(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.hostedTicket()
		w.nodes["C"].set(refuse(ginnel.PeerDetached))
		w.resume(ticket, 1).failure(ginnel.PeerDetached)
		w.nodes["C"].away = true
		w.publish()
		w.resume(ticket, 2).failure(ginnel.PeerDetached)
		w.starting = true
		w.resume(ticket, 3).failure(ginnel.Busy)
	})
}

func TestResumeRefused(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		w.resumeAs("mallory", ticket, 1).failure(ginnel.NotAuthenticated)
		w.resume(nil, 1).failure(ginnel.NotAuthenticated)

		forged := new(wire.Ticket)
		if err := proto.Unmarshal(ticket.GetPayload(), forged); err != nil {
			t.Fatal(err)
		}
		w.resume(w.sign("alice", wire.DomainTicket, forged), 1).failure(ginnel.NotAuthenticated)
		foreign := proto.CloneOf(forged)
		foreign.Network = "other"
		w.resume(w.ticket(foreign), 1).failure(ginnel.NotAuthenticated)

		w.resume(ticket, 0).failure(ginnel.StaleGeneration)
		w.resume(ticket, 1<<24).failure(ginnel.StaleGeneration)

		newer := proto.CloneOf(forged)
		newer.Revision += 1000
		w.update(func(tx *store.Tx) error { return tx.Policies().Delete("d") })
		w.resume(ticket, 1).failure(ginnel.NotAuthorized)
		w.resume(w.ticket(newer), 1).failure(ginnel.Busy) // decided on what we have not seen
		w.update(func(tx *store.Tx) error { return tx.Identities().Delete("alice") })
		w.resume(ticket, 1).failure(ginnel.NotAuthenticated)
		w.resume(w.ticket(newer), 1).failure(ginnel.Busy)
	})
}

// ticket signs a ticket as a controller of the network does.
func (w *circuitWorld) ticket(t *wire.Ticket) *wire.Signed {
	w.t.Helper()
	signed, err := pki.SignTicket(w.c.holder.Load(), t)
	if err != nil {
		w.t.Fatal(err)
	}
	return signed
}

// A circuit may outlive the certificate of the controller that set it up.
func TestResumeWithOldTicket(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		young := new(wire.Ticket)
		if err := proto.Unmarshal(w.dial(nil).response().GetTicket().GetPayload(), young); err != nil {
			t.Fatal(err)
		}
		then := w.credentialAt(time.Now().Add(-pki.LeafLife-24*time.Hour), ginnel.RoleController, "ctrl0")
		for ago, code := range map[time.Duration]ginnel.Code{48 * time.Hour: ginnel.CodeOK, time.Hour: ginnel.NotAuthenticated} {
			young.Issued = time.Now().Add(-ago).UnixNano()
			ticket, err := pki.SignTicket(then, young)
			if err != nil {
				t.Fatal(err)
			}
			if c := w.resume(ticket, 1); code == ginnel.CodeOK {
				c.response()
			} else {
				c.failure(code)
			}
		}
	})
}

func TestResumeStale(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		row := w.report(ticket, "A", false, 1, 0)
		row.generation = 3*256 + 1
		w.resume(ticket, 2).failure(ginnel.StaleGeneration)
		w.resume(ticket, 3).failure(ginnel.StaleGeneration)
		w.resume(ticket, 4).response()

		// The routers know best, and are not asked a second time.
		w.nodes["C"].set(refuse(ginnel.StaleGeneration))
		if err := w.resume(ticket, 5).failure(ginnel.StaleGeneration); len(err.Attempts) != 1 {
			t.Errorf("attempts %v", err.Attempts)
		}
	})
}

// A router that the circuit has left, or that it never met, cannot keep it from
// being resumed by saying that it has a newer path.
func TestResumeDespiteALiar(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		for _, host := range []bool{false, true} {
			w.report(ticket, "B", host, 1, 0).generation = 1<<32 - 1
		}
		w.resume(ticket, 1).response()
	})
}

// Two resumes of one circuit cross: each hears of its own path only, and the
// answers to one do not count for the other.
func TestL111_ResumesCross(t *testing.T) {
	inCircuitWorld(t, func(t *testing.T, w *circuitWorld) {
		ticket := w.dial(nil).response().GetTicket()
		var first *wire.Route
		w.nodes["C"].set(func(r *fakeRouter, route *wire.Route) {
			first = route
			r.connecting(route)
		})
		older := w.resume(ticket, 1)
		synctest.Wait()
		again := w.resume(ticket, 1)
		again.failure(ginnel.StaleGeneration)
		w.nodes["C"].set(agree)
		if r := w.resume(ticket, 2).response(); r.GetGeneration() != 513 {
			t.Errorf("generation %d, want 513", r.GetGeneration())
		}
		w.nodes["C"].result(first, nil, ginnel.Errorf(ginnel.StaleGeneration, "a newer path is there"))
		older.failure(ginnel.StaleGeneration)
		for _, id := range []ginnel.RouterID{"A", "B", "C"} {
			r := w.nodes[id]
			if _, ok := r.held[routeOf{first.GetCircuit(), 513}]; !ok {
				t.Errorf("router %s lost the newest path", id)
			}
			if _, ok := r.held[routeOf{first.GetCircuit(), 257}]; ok && id != "C" {
				t.Errorf("router %s keeps the older path", id)
			}
		}
		w.wantIdle()
	})
}
