// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/splice"
)

func TestGate(t *testing.T) {
	epoch := time.Unix(1000, 0)
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	g := newGate(3)
	down := ginnel.Errorf(ginnel.NoOnlineTerminators, "none")
	enter := func(ms int, want error) {
		t.Helper()
		if err := g.enter(at(ms), "web"); !errors.Is(err, want) {
			t.Fatalf("at %d ms: got %v, want %v", ms, err, want)
		}
	}
	try := func(ms int, dialed error, givenUp bool) {
		t.Helper()
		enter(ms, nil)
		g.dialed("web", dialed, givenUp)
		g.leave("web")
	}
	for range 3 { // the share
		enter(0, nil)
		g.dialed("web", nil, false)
	}
	enter(0, ginnel.Busy)
	if err := g.enter(at(0), "db"); err != nil {
		t.Errorf("another service: %v", err)
	}
	g.leave("web")
	enter(0, nil)
	for range 3 {
		g.leave("web")
	}
	for range 20 { // a program that gives up says nothing
		try(0, context.Canceled, true)
	}
	for range patience - 1 {
		try(0, down, false)
	}
	try(0, nil, false) // begins anew
	for range patience {
		try(1, down, false)
	}
	enter(2, ginnel.NoOnlineTerminators) // dead: told at once
	enter(100, ginnel.NoOnlineTerminators)
	try(101, down, false) // the probe
	enter(102, ginnel.NoOnlineTerminators)
	enter(201, nil) // one at a time
	enter(202, ginnel.NoOnlineTerminators)
	g.dialed("web", nil, false)
	enter(203, nil) // alive
	g.leave("web")
	g.leave("web")
	if g.loads["web"] != nil {
		t.Error("a service without connections and failures is still remembered")
	}
	for range patience {
		try(300, down, false)
	}
	g.keep(func(ginnel.ServiceID) bool { return false })
	try(301, nil, false) // gone and back: nothing is held against it
}

// TestTunnel_DeadServiceIsHammered opens 10,000 connections to a service that
// cannot be dialed, as fast as it goes.
func TestTunnel_DeadServiceIsHammered(t *testing.T) {
	dead := web("dead.internal")
	dead.ID = "dead"
	d := newTwin(web("web.internal"), dead)
	var dials atomic.Int64
	echo := upperEcho(t)
	d.dial = func(ctx context.Context, s ginnel.ServiceID, m Meta) (net.Conn, error) {
		if s == "dead" {
			dials.Add(1)
			return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "none")
		}
		return echo(ctx, s, m)
	}
	var log lines
	tunnel := run(t, Config{
		Dialer: d, Proxies: []Proxy{{"127.0.0.1:0", "dead.internal:80"}, {"127.0.0.1:0", "web.internal:80"}},
		Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	at := tunnel.Addresses().Proxies
	const all, workers = 10_000, 50
	began := time.Now()
	var refused atomic.Int64
	var hammering sync.WaitGroup
	for range workers {
		hammering.Go(func() {
			for range all / workers {
				conn, err := net.Dial("tcp", at[0])
				if err != nil { // reset before the dial has returned
					refused.Add(1)
					continue
				}
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); err != nil && !isTimeout(err) {
					refused.Add(1)
				}
				_ = conn.Close()
			}
		})
	}
	for range 20 { // meanwhile
		conn := dialTCP(t, at[1])
		_, _ = io.WriteString(conn, "hello")
		_ = conn.CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || string(got) != "web web.internal: hello" {
			t.Errorf("the other service: got %q, %v", got, err)
		}
	}
	hammering.Wait()
	if got := refused.Load(); got != all {
		t.Errorf("%d of %d connections were refused", got, all)
	}
	// Dials that had begun before the eighth failure was known come on top.
	most := patience + int64(time.Since(began)/probeInterval) + workers
	if got := dials.Load(); got > most {
		t.Errorf("%d dials, want at most %d", got, most)
	}
	if got := int64(len(log.all())); got > most+10 {
		t.Errorf("%d lines in the log for %d dials", got, dials.Load())
	}
}

// TestTunnel_SilentConnections has programs open more connections to one
// service than it may have and say nothing.
func TestTunnel_SilentConnections(t *testing.T) {
	other := web("other.internal")
	other.ID = "other"
	d := newTwin(web("web.internal"), other)
	d.dial = upperEcho(t)
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0", Connections: 200})
	open := func(host string) (byte, net.Conn) {
		conn := dialTCP(t, tunnel.Addresses().SOCKS)
		_, _ = conn.Write(append([]byte{5, 1, 0}, domainRequest(host, 80)...))
		reply := make([]byte, 12)
		if _, err := io.ReadFull(conn, reply); err != nil {
			t.Fatal(err)
		}
		return reply[3], conn
	}
	var first net.Conn
	for i := range 120 {
		want := byte(socksSucceeded)
		if i >= 100 {
			want = byte(socksGeneralFailure)
		}
		reply, conn := open("web.internal")
		if reply != want {
			t.Fatalf("connection %d: got reply %#02x, want %#02x", i, reply, want)
		}
		if i == 0 {
			first = conn
		}
	}
	if reply, _ := open("other.internal"); reply != byte(socksSucceeded) {
		t.Errorf("another service: got reply %#02x", reply)
	}
	_ = first.Close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		reply, conn := open("web.internal")
		_ = conn.Close()
		if reply == byte(socksSucceeded) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("one has ended, and there is still no room")
		}
	}
}

// TestTunnel_SilentProxyClients has programs open connections to the proxy and not say
// where they want to go, more than it serves: who does is served all the same.
func TestTunnel_SilentProxyClients(t *testing.T) {
	d := newTwin(web("web.internal"))
	d.dial = upperEcho(t)
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0", Connections: 20, Handshake: time.Hour})
	open := func(text string) net.Conn { // nil: it was reset before the dial had returned
		conn, err := net.Dial("tcp", tunnel.Addresses().SOCKS)
		if err != nil {
			return nil
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(conn, text)
		return conn
	}
	first := open("")
	for i := range 100 { // in all states of half a request
		open([]string{"", "\x05", "\x05\x01\x00\x05", "C", "CONNECT web.internal:80 HTTP/1.1\r\n"}[i%5])
	}
	eventually(t, func() bool { // those who were reset may not all have left yet
		talking := open("CONNECT web.internal:80 HTTP/1.1\r\n\r\nhello")
		if talking == nil {
			return false
		}
		_ = splice.CloseWrite(talking)
		got, err := io.ReadAll(talking)
		return err == nil && strings.HasSuffix(string(got), "web web.internal: hello")
	})
	if _, err := io.Copy(io.Discard, first); isTimeout(err) {
		t.Error("the longest silent is still there")
	}
}
