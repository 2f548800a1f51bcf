// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// A circuit over three routers carries bytes both ways, and leaves nothing behind.
func TestCircuitBothWays(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2", "r3")
		data := blob(3 << 20)
		sum, failed := k.exchange(data)
		f.wantSum(data, sum, failed, 10*time.Second)
		w.pass(200 * time.Millisecond)
		client, host := f.endpointsOf("r1")["c-1/false"], f.endpointsOf("r3")["c-1/true"]
		if client == nil || client.GetGeneration() != 1 || client.GetTicket() == nil || len(client.GetPath()) != 3 || len(client.GetLinks()) != 2 {
			t.Errorf("r1 reported %v", client)
		}
		if host == nil || host.GetTicket() == nil {
			t.Errorf("r3 reported %v", host)
		}
		w.pass(25 * time.Second)
		for id, r := range f.routers {
			if n := r.Status().Circuits; n != 0 {
				t.Errorf("%s keeps %d rows", id, n)
			}
			if left := r.circuits.budget.Left(); left != circuitBudget {
				t.Errorf("%s keeps %d bytes of budget", id, circuitBudget-left)
			}
			if n := r.circuits.strays.Load(); n != 0 {
				t.Errorf("%s met %d stray frames", id, n)
			}
		}
		if e := f.endpointsOf("r1")["c-1/false"]; !e.GetRemoved() || e.GetBytesSent() < uint64(len(data)) || e.GetBytesReceived() < uint64(len(data)) {
			t.Errorf("r1 reported at last: removed %v, %d sent, %d received", e.GetRemoved(), e.GetBytesSent(), e.GetBytesReceived())
		}
		if e := f.endpointsOf("r3")["c-1/true"]; !e.GetRemoved() || e.GetBytesSent() < uint64(len(data)) {
			t.Errorf("r3 reported at last: removed %v, %d sent", e.GetRemoved(), e.GetBytesSent())
		}
	})
}

func TestL60_HalfClose(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		answer := blob(10 << 20)
		f.server(func(c net.Conn) {
			got, err := io.ReadAll(c)
			if err != nil || len(got) != 1024 {
				t.Errorf("server read %d bytes, %v", len(got), err)
			}
			_, _ = c.Write(answer)
		})
		k := f.program("alice", "r1").dial("c-1", "r1", "r2")
		if _, err := k.conn.Write(blob(1024)); err != nil {
			t.Fatal(err)
		}
		if err := k.conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		sum, failed := k.read()
		f.wantSum(answer, sum, failed, 10*time.Second)
	})
}

// A killed link breaks the path at once; the client asks for another one and not
// a byte is lost.
func TestL64_LinkKilledInATransfer(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r4"}, [2]string{"r1", "r3"}, [2]string{"r3", "r4"})
		w.net.SetLatency("alice", "r1", 10*time.Millisecond)
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2", "r4")
		stop := k.flood(time.Millisecond)
		<-time.After(100 * time.Millisecond)
		if err := f.stops["r2"](); err != nil {
			t.Fatal(err)
		}
		select {
		case want := <-k.wants:
			if want != flow.WantPath {
				t.Errorf("got want %v", want)
			}
		case <-time.After(time.Second):
			t.Fatal("the client did not hear that its path is broken")
		}
		if err := k.resume("r1", "r3", "r4"); err != nil {
			t.Fatal(err)
		}
		stop()
	})
}

// A link that is silent and back within a minute needs no controller.
func TestL64_LinkMendedOnTheSameGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		w.net.SetLatency("alice", "r1", 10*time.Millisecond)
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2", "r3")
		stop := k.flood(time.Millisecond)
		<-time.After(100 * time.Millisecond)
		w.net.Silence("r2", "r3")
		w.net.Silence("r3", "r2")
		<-time.After(8 * time.Second)
		w.net.Resume("r2", "r3")
		w.net.Resume("r3", "r2")
		stop()
		if g := k.conn.Stream().Generation(); g != 1 {
			t.Errorf("generation %d", g)
		}
	})
}

// The client's edge connection is replaced by one of the same process.
func TestEdgeConnectionBackOnTheSameGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		w.net.SetLatency("alice", "r1", 10*time.Millisecond)
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2")
		stop := k.flood(time.Millisecond)
		<-time.After(100 * time.Millisecond)
		w.net.Cut("alice", "r1")
		<-p.conn.Done()
		k.conn.Stream().ConnLost(1)
		<-time.After(2 * time.Second)
		p.connect("r1", k)
		stop()
	})
}

// One path, the newest, whatever comes late.
func TestL111_LateUnrouteOfAnOldGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r4"}, [2]string{"r1", "r3"}, [2]string{"r3", "r4"})
		w.net.SetLatency("alice", "r1", 10*time.Millisecond) // time goes on while bytes flow
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2", "r4")
		stop := k.flood(time.Millisecond)
		<-time.After(50 * time.Millisecond)
		for i := range 6 {
			over := []string{"r3", "r2"}[i%2]
			old := k.generation
			if err := k.resume("r1", over, "r4"); err != nil {
				t.Fatal(err)
			}
			f.unroute("c-1", old, ginnel.CodeOK, "r1", "r2", "r3", "r4")
		}
		stop()
		if n := f.routers["r4"].Status().Circuits; n != 1 {
			t.Errorf("%d rows at the egress", n)
		}
	})
}

func TestStaleGeneration(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1", "r2", "r3")
		if err := k.resume("r1", "r2", "r3"); err != nil {
			t.Fatal(err)
		}
		for _, generation := range []uint32{1, 256, 257} {
			for i, m := range f.messages(route{circuit: "c-1", generation: generation, routers: []string{"r1", "r2", "r3"}, egress: egressOf(k)})[1:] {
				res := f.send([]string{"r2", "r3"}[i], m)
				if code := ginnel.Code(res.GetFailure().GetCode()); code != ginnel.StaleGeneration {
					t.Errorf("generation %d at router %d: got %v", generation, i+2, code)
				}
			}
		}
	})
}

// Unroute with a code ends the circuit, and its endpoints hear why.
func TestUnrouteWithCode(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		k := f.program("alice", "r1").dial("c-1", "r1", "r2")
		f.unroute("c-1", 1, ginnel.Revoked, "r1")
		if _, err := io.ReadAll(k.conn); !errors.Is(err, ginnel.Revoked) {
			t.Errorf("got %v", err)
		}
		w.pass(time.Minute)
		if n := f.routers["r2"].Status().Circuits; n != 0 {
			t.Errorf("%d rows at the egress", n)
		}
	})
}

// A path that is taken back before its client heard of it, whoever takes it back, is
// not the circuit's: that goes on by the one it has.
func TestL65_PathTakenBackLeavesTheCircuit(t *testing.T) {
	for name, takeBack := range map[string]func(*fabric, *call, resuming){
		"by the client": func(_ *fabric, k *call, _ resuming) {
			for id := range uint64(9) {
				_ = k.p.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: id + 1}}})
			}
		},
		"by the controller": func(f *fabric, _ *call, r resuming) { f.unroute("c-1", r.generation, ginnel.Cancelled, "r1") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				f := newFabric(w)
				f.server(echo)
				k := f.program("alice", "r1").dial("c-1", "r1")
				r, err := k.route("r1")
				if err != nil {
					t.Fatal(err)
				}
				takeBack(f, k, r)
				w.pass(100 * time.Millisecond)
				if n := f.routers["r1"].Status().Circuits; n != 1 {
					t.Errorf("%d rows", n)
				}
				data := blob(1 << 20)
				sum, failed := k.exchange(data)
				f.wantSum(data, sum, failed, 10*time.Second)
			})
		})
	}
}

// A link over which no row can go is named, and the labels are not lost.
func TestRouteOverADownLink(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r2", "r3"})
		p := f.program("alice", "r1")
		k := &call{ticket: p.ask("c-1", "router", "r3", "web-1", "r3").ticket}
		_ = f.stops["r3"]()
		w.pass(10 * time.Millisecond)
		for i := range 1200 {
			rs := f.messages(route{circuit: "c-1", generation: uint32(i + 1), routers: []string{"r1", "r2", "r3"}, egress: egressOf(k)})
			res := f.send("r2", rs[1])
			if code := ginnel.Code(res.GetFailure().GetCode()); code != ginnel.RouterErrInvalidLinkDestination {
				t.Fatalf("attempt %d: got %v", i, res)
			}
			f.labels["r1"] = append(f.labels["r1"], rs[1].GetUpOut())
			f.labels["r3"] = append(f.labels["r3"], rs[1].GetDownOut())
		}
	})
}
