// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestL23_WhatIsSaidOfListeners(t *testing.T) {
	for _, tc := range []struct {
		name      string
		advertise []ginnel.Address
		want      string // absent: nil
	}{
		{"absent", nil, "<nil>"},
		{"empty", []ginnel.Address{}, "[]"},
		{"two, in order", []ginnel.Address{"tls:b:1", "tls:a:1"}, "[tls:b:1 tls:a:1]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.controller("c1")
				c.listen("c1:7000")
				cfg := Config{Controllers: []ginnel.Address{"tls:c1:7000"}, Advertise: tc.advertise, Listen: "r1:7000"}
				r := w.made("r1", cfg, w.enrolled("r1", 0), nil)
				w.run(r)
				w.until(r, time.Second, "connected", connected)
				listeners := c.channel("r1").hello.GetRouter().GetCtrlListeners()
				got := "<nil>"
				if listeners != nil {
					all := []string{}
					for _, l := range listeners.GetListeners() {
						all = append(all, l.GetAddress())
					}
					got = fmt.Sprint(all)
				}
				if got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestL101_ControllerOfAStranger(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		stranger := w.controllerOf("c1", foreign(w, controllerPeer("c1")))
		if err := stranger.dial("r1"); err == nil {
			t.Error("dial succeeded")
		}
		w.pass(time.Second)
		if connected(r.Status()) {
			t.Error("connected")
		}
	})
}

// A router or identity of this network has no business on a ctrl channel, even
// with a controller's certificate behind its own.
func TestL100_OnlyTheLeafCounts(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		filler := w.issue(controllerPeer("c1"), 0)
		for _, peer := range []ginnel.Peer{routerPeer("r2"), identityPeer("alice")} {
			h := pki.NewHolder(w.issue(peer, 0))
			cfg := pki.ClientConfig(h, time.Now, ginnel.Peer{}, wire.ALPNCtrl)
			cfg.VerifyConnection = nil
			shown := h.Load().TLS()
			chain := append([][]byte{shown.Certificate[0], filler.Leaf.Raw}, shown.Certificate[1:]...)
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: chain, PrivateKey: shown.PrivateKey}, nil
			}
			if conn, err := transport.Dial(w.ctx, w.net, "r1:7000", cfg); err == nil {
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s was answered", peer)
				}
				_ = conn.Close()
			}
		}
		if connected(r.Status()) {
			t.Error("connected")
		}
	})
}

// The router and its controller dial each other: one channel stays, and the
// router's dial machine rests.
func TestDialedFromBothEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.net.SetLatency("c1", "r1", 10*time.Millisecond)
		c := w.controller("c1")
		c.listen("c1:7000")
		cfg := listening("r1")
		cfg.Controllers = []ginnel.Address{"tls:c1:7000"}
		r := w.made("r1", cfg, w.enrolled("r1", 0), nil)
		w.run(r)
		_ = c.dial("r1") // it may be the duplicate
		w.until(r, time.Second, "connected", connected)
		w.pass(10 * time.Second)
		conn, number := c.registry.Get("r1")
		all := r.ctrl.all()
		if conn == nil || len(all) != 1 || all[0].connection != number {
			t.Fatalf("the controller holds %d, the router %d channels", number, len(all))
		}
		w.pass(time.Hour)
		if again, _ := c.registry.Get("r1"); again != conn {
			t.Error("the channel did not stay")
		}
		// It ends: the router dials again.
		conn.Close(nil)
		w.pass(time.Second)
		w.until(r, 2*time.Second, "connected", connected)
	})
}

// Two addresses of one controller are one channel.
func TestTwoAddressesOfOneController(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		c.listen("c1:7000")
		c.listen("c1:7001")
		cfg := Config{Controllers: []ginnel.Address{"tls:c1:7000", "tls:c1:7001"}}
		r := w.made("r1", cfg, w.enrolled("r1", 0), nil)
		w.run(r)
		w.until(r, time.Second, "connected", connected)
		w.pass(time.Minute)
		first := r.ctrl.any()
		if n := len(r.Status().Controllers); n != 1 {
			t.Errorf("%d channels", n)
		}
		first.conn.Close(errors.New("cut"))
		w.pass(time.Minute)
		if second := r.ctrl.any(); second == nil || second == first {
			t.Error("no new channel")
		}
	})
}

// What SDKs are told of controllers: their boot, and their clock, which is a
// minute ahead.
func TestControllersAreNamed(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		for _, id := range []string{"c1", "c2"} {
			w.controller(id).dials("r1")
		}
		w.pass(time.Hour)
		list := r.controllers().GetControllers()
		if len(list) != 2 || list[0].GetId() != "c1" || list[1].GetBoot() != "boot-of-c2" {
			t.Fatalf("got %v", list)
		}
		if ahead := time.Until(time.Unix(0, list[0].GetClock())); ahead != time.Minute {
			t.Errorf("the clock is %s ahead", ahead)
		}
		if ch := r.ctrl.to("c2"); ch == nil || ch.controller != "c2" {
			t.Errorf("got %v", ch)
		}
	})
}

// loadOf gives the load of a terminator with open circuits.
func loadOf(circuits int) terminator.Dynamic {
	return terminator.Reported(time.Now(), terminator.Load{Circuits: circuits})
}

func TestStatePagesEndWithEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		const n = 2000
		for i := range n {
			r.report.endpoint(&wire.EndpointState{Circuit: fmt.Sprintf("circuit-%05d", i), Generation: 1, Path: []string{"r1", "r2"}})
		}
		r.report.terminator(&wire.TerminatorState{Id: "t1"}, loadOf(0))
		r.report.edge(&wire.EdgeState{Identity: "alice", Connection: 7})
		r.report.terminator(&wire.TerminatorState{Id: "t2"}, loadOf(0))
		r.report.terminator(&wire.TerminatorState{Id: "t2", Removed: true}, loadOf(0))
		c := w.controller("c1")
		c.dials("r1")
		w.pass(10 * time.Millisecond)
		pages := c.channel("r1").reported()
		if len(pages) < 3 {
			t.Fatalf("%d pages", len(pages))
		}
		endpoints, terminators := map[string]bool{}, 0
		for i, page := range pages {
			if size := proto.Size(page); size > wire.MaxPayload {
				t.Errorf("page %d has %d bytes", i, size)
			}
			if page.GetEnd() != (i == len(pages)-1) {
				t.Errorf("page %d of %d: end %v", i, len(pages), page.GetEnd())
			}
			for _, e := range page.GetEndpoints() {
				endpoints[e.GetCircuit()] = true
			}
			terminators += len(page.GetTerminators())
		}
		if len(endpoints) != n || terminators != 1 {
			t.Errorf("%d endpoints, %d terminators", len(endpoints), terminators)
		}
	})
}

// A router without anything to report still ends its state.
func TestEmptyStateEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.router("r1")
		c := w.controller("c1")
		c.dials("r1")
		w.pass(time.Millisecond)
		if pages := c.channel("r1").reported(); len(pages) != 1 || !pages[0].GetEnd() {
			t.Errorf("got %v", pages)
		}
	})
}

func TestReporterCoalesces(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		c1, c2 := w.controller("c1"), w.controller("c2")
		for _, c := range []*double{c1, c2} {
			c.dials("r1")
		}
		w.pass(time.Second)
		r.report.terminator(&wire.TerminatorState{Id: "t1"}, loadOf(0))
		w.pass(time.Second)
		for i := range 1000 {
			r.report.terminator(&wire.TerminatorState{Id: "t1"}, loadOf(i+1))
			if i%2 == 0 {
				r.report.endpoint(&wire.EndpointState{Circuit: "x", Generation: uint32(i)})
			} else {
				r.report.endpoint(&wire.EndpointState{Circuit: "x", Removed: true})
			}
		}
		w.pass(99 * time.Millisecond)
		for _, c := range []*double{c1, c2} {
			if n := len(c.channel("r1").reported()); n != 2 {
				t.Errorf("%s: %d pages before 100 ms", c.id, n)
			}
		}
		w.pass(time.Millisecond)
		for _, c := range []*double{c1, c2} {
			pages := c.channel("r1").reported()
			last := pages[len(pages)-1]
			if len(pages) != 3 || len(last.GetTerminators()) != 1 || last.GetTerminators()[0].GetCircuits() != 1000 ||
				len(last.GetEndpoints()) != 1 || !last.GetEndpoints()[0].GetRemoved() {
				t.Errorf("%s: %d pages, the last %v", c.id, len(pages), last)
			}
		}
		// Health goes out at once, and what waited with it.
		r.report.endpoint(&wire.EndpointState{Circuit: "y"})
		r.report.terminator(&wire.TerminatorState{Id: "t1", Unhealthy: true}, loadOf(1000))
		w.pass(0)
		pages := c1.channel("r1").reported()
		if last := pages[len(pages)-1]; len(pages) != 4 || len(last.GetTerminators()) != 1 || len(last.GetEndpoints()) != 1 {
			t.Errorf("%d pages, the last %v", len(pages), last)
		}
	})
}

// A controller that takes nothing for a while gets the newest of everything
// once it does; one that takes nothing for good is given up.
func TestSlowChannelHoldsOneOfEachKey(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		c := w.controller("c1")
		c.dials("r1")
		w.pass(time.Second)
		ch := r.ctrl.any()
		w.net.Silence("r1", "c1")
		big := make([]string, 100)
		for i := range big {
			big[i] = fmt.Sprintf("router-of-a-long-name-%03d", i)
		}
		const keys = 2000
		for round := range 4 { // 2.5 MB each
			for i := range keys {
				r.report.endpoint(&wire.EndpointState{Circuit: fmt.Sprint(i), Generation: uint32(round), Path: big})
			}
			w.pass(200 * time.Millisecond)
		}
		r.report.mu.Lock()
		waiting := len(r.report.outs[ch].order)
		r.report.mu.Unlock()
		if waiting == 0 || waiting > keys {
			t.Errorf("%d keys wait", waiting)
		}
		w.net.Resume("r1", "c1")
		w.pass(time.Second)
		newest := map[string]uint32{}
		for _, page := range c.channel("r1").reported() {
			for _, e := range page.GetEndpoints() {
				newest[e.GetCircuit()] = e.GetGeneration()
			}
		}
		for i := range keys {
			if g := newest[fmt.Sprint(i)]; g != 3 {
				t.Fatalf("circuit %d: generation %d", i, g)
			}
		}
		w.net.Silence("r1", "c1")
		for i := range keys { // fills the queue; then a little more is enough
			r.report.endpoint(&wire.EndpointState{Circuit: fmt.Sprint(i), Path: big})
		}
		for i := range 80 {
			r.report.endpoint(&wire.EndpointState{Circuit: fmt.Sprint(i), Generation: 1, Path: big})
			w.pass(100 * time.Millisecond)
		}
		if err := ch.conn.Err(); !errors.Is(err, transport.ErrStuck) {
			t.Errorf("got %v", err)
		}
		w.net.Resume("r1", "c1")
	})
}

func TestTooManyChangesCloseTheChannel(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		r.report.most = 2000
		c := w.controller("c1")
		c.dials("r1")
		w.pass(time.Second)
		ch := r.ctrl.any()
		for i := range r.report.most + 1 {
			r.report.endpoint(&wire.EndpointState{Circuit: fmt.Sprint(i)})
		}
		w.pass(0)
		if err := ch.conn.Err(); !errors.Is(err, errUnsent) {
			t.Errorf("got %v", err)
		}
		c.dials("r1")
		w.pass(time.Second)
		pages := c.channel("r1").reported()
		if !pages[len(pages)-1].GetEnd() {
			t.Error("the whole state was not sent")
		}
	})
}

func TestUnknownMessagesAreSkipped(t *testing.T) {
	inWorld(t, func(w *world) {
		r := w.router("r1")
		c := w.controller("c1")
		c.dials("r1")
		w.until(r, time.Second, "connected", connected)
		for _, m := range []*wire.Message{{}, {Body: &wire.Message_Hello{Hello: &wire.Hello{}}}, {Id: 5, Body: &wire.Message_BindRequest{}}} {
			if err := c.channel("r1").conn.SendControl(m); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(time.Second)
		if err := c.channel("r1").conn.Err(); err != nil {
			t.Error(err)
		}
	})
}
