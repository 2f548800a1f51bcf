// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMatch(t *testing.T) {
	intercept := func(names, ports []string, protocols ...string) *ginnel.Intercept {
		return &ginnel.Intercept{Addresses: names, Ports: ports, Protocols: protocols}
	}
	list := []Service{
		{Service: ginnel.Service{ID: "all", Intercept: intercept([]string{"*.corp.example"}, []string{"1-65535"})}, CanDial: true},
		{Service: ginnel.Service{ID: "db", Intercept: intercept([]string{"db.corp.example"}, []string{"5432"})}, CanDial: true},
		{Service: ginnel.Service{ID: "deep", Intercept: intercept([]string{"*.deep.corp.example"}, []string{"80"})}, CanDial: true},
		{Service: ginnel.Service{ID: "dns", Intercept: intercept([]string{"ns.corp.example"}, []string{"53"}, "udp")}, CanDial: true},
		{Service: ginnel.Service{ID: "hosted"}, CanBind: true},
		{Service: ginnel.Service{ID: "lan", Intercept: intercept([]string{"192.0.0.0/8"}, []string{"1-65535"})}, CanDial: true},
		{Service: ginnel.Service{ID: "rack", Intercept: intercept([]string{"192.0.2.0/24"}, []string{"80"})}, CanDial: true},
		{Service: ginnel.Service{ID: "web", Intercept: intercept([]string{"web.corp.example", "192.0.2.7"}, []string{"80", "8000-8010"})}, CanDial: true},
	}
	for _, tt := range []struct {
		protocol, host string
		port           uint16
		want           ginnel.ServiceID
	}{
		{"tcp", "web", 80, "web"},
		{"tcp", "WEB", 1, "web"},
		{"tcp", "web.corp.example", 80, "web"},
		{"tcp", "Web.Corp.Example.", 8005, "web"},
		{"tcp", "web.corp.example", 81, "all"},
		{"tcp", "192.0.2.7", 80, "web"},
		{"tcp", "192.0.2.8", 80, "rack"},
		{"tcp", "192.0.2.8", 81, "lan"},
		{"tcp", "193.0.2.8", 81, ""},
		{"tcp", "db.corp.example", 5432, "db"},
		{"tcp", "x.deep.corp.example", 80, "deep"},
		{"tcp", "x.deep.corp.example", 81, "all"},
		{"tcp", "corp.example", 80, ""},
		{"tcp", "hosted", 80, ""},
		{"udp", "ns.corp.example", 53, "dns"},
		{"udp", "web.corp.example", 80, ""},
		{"tcp", "elsewhere.example", 80, ""},
	} {
		got, ok := match(list, tt.protocol, tt.host, tt.port)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s %s:%d: got %q, want %q", tt.protocol, tt.host, tt.port, got, tt.want)
		}
	}
}

func TestServicesFollowTheController(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		alice := w.client("alice")
		if alice.Services() != nil {
			t.Error("a list before one was heard")
		}
		<-alice.Changed()
		if got := alice.Services(); got == nil || len(got) != 0 {
			t.Errorf("got %v", got)
		}
		changed := alice.Changed()
		w.serve(&wire.ServiceInfo{Id: "web", CanDial: true, Routers: []string{"r1"}}, &wire.ServiceInfo{Id: "db", CanBind: true})
		<-changed
		got := alice.Services()
		if len(got) != 2 || got[0].ID != "db" || !got[0].CanBind || got[1].ID != "web" || !got[1].CanDial || len(got[1].Routers) != 1 {
			t.Errorf("got %+v", got)
		}
		// Another life of the controller is asked again.
		w.mu.Lock()
		w.lists, w.boot = nil, "b2"
		w.mu.Unlock()
		pass(5 * time.Second)
		changed = alice.Changed()
		w.serve(&wire.ServiceInfo{Id: "web", CanDial: true})
		<-changed
		if got := alice.Services(); len(got) != 1 {
			t.Errorf("got %+v", got)
		}
	})
}

// Pages that nobody asked for, or that a router made up, change nothing.
func TestForeignPagesAreSkipped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		alice := w.client("alice")
		<-alice.Changed()
		synctest.Wait()
		changed := alice.Changed()
		e := alice.edges.ranked(wish{})[0]
		router := w.routers["r1"].holder.Load()
		nonce := alice.services.asked.nonce
		for _, tt := range []struct {
			by   *pki.Credential
			page *wire.ServiceList
		}{
			{router, &wire.ServiceList{Identity: "alice", Nonce: nonce, Sequence: 9, Pages: 1}},
			{w.ctrl, &wire.ServiceList{Identity: "bob", Nonce: nonce, Sequence: 9, Pages: 1}},
			{w.ctrl, &wire.ServiceList{Identity: "alice", Nonce: newNonce(), Sequence: 9, Pages: 1}},
			{w.ctrl, &wire.ServiceList{Identity: "alice", Nonce: nonce, Sequence: 1, Pages: 1}},
			{w.ctrl, &wire.ServiceList{Identity: "alice", Nonce: nonce, Sequence: 9, Pages: 2, Page: 1}},
			{w.ctrl, &wire.ServiceList{Identity: "alice", Nonce: nonce, Sequence: 9, Pages: 0}},
			{w.ctrl, &wire.ServiceList{Identity: "alice", Nonce: nonce, Sequence: 9, Pages: 1 << 30}},
		} {
			signed, err := pki.Sign(tt.by, wire.DomainServiceList, tt.page)
			if err != nil {
				t.Fatal(err)
			}
			alice.services.page(e, signed)
		}
		select {
		case <-changed:
			t.Error("a foreign page was taken")
		default:
		}
	})
}

func TestL48_EdgeRouterReplacedByAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		file := filepath.Join(t.TempDir(), "alice.json")
		bob, alice := w.client("bob"), w.keeping(file, w.aged("alice", 0))
		defer alice.Close()
		l := echo(t, bob, "echo", ListenOptions{})
		pass(5 * time.Second)
		w.start("r2")
		w.mu.Lock()
		w.edges = []*wire.EdgeRouterInfo{{Id: "r2", Address: "tls:r2:1"}}
		w.mu.Unlock()
		w.serve()
		synctest.Wait()
		w.kill("r1")
		pass(5 * time.Second)
		if got := l.Routers(); len(got) != 1 || got[0] != "r2" {
			t.Errorf("bound at %v", got)
		}
		conn, err := alice.Dial(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if got := alice.Identity().held.EdgeRouters; len(got) != 1 || got[0].ID != "r2" {
			t.Errorf("identity names %v", got)
		}
		// The file follows, for the program's next start.
		kept, err := LoadIdentity(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := kept.held.EdgeRouters; len(got) != 1 || got[0].ID != "r2" {
			t.Errorf("the file names %v", got)
		}
	})
}
