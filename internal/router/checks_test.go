// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/wire"
)

// unhealthy gives what was said last of a terminator's health.
func (ch *doubleChannel) unhealthy(id string) (unhealthy bool) {
	for _, page := range ch.reported() {
		for _, t := range page.GetTerminators() {
			if t.GetId() == id {
				unhealthy = t.GetUnhealthy()
			}
		}
	}
	return unhealthy
}

// checked gives a router's channel to a controller that has it check one
// terminator, at app:80.
func (w *world) checked(check *wire.HealthCheck) *doubleChannel {
	w.t.Helper()
	c := w.controller("c1")
	w.router("r1")
	c.dials("r1")
	ch := c.channel("r1")
	ch.check(1, check)
	return ch
}

func (ch *doubleChannel) check(revision int64, check *wire.HealthCheck) {
	ch.send(&wire.RouterConfig{Revision: revision, Pages: 1, Terminators: []*wire.HostedTerminator{
		{Id: "web-1", Service: "web", Address: "tcp:app:80", Check: check},
	}})
}

func tcpCheck() *wire.HealthCheck {
	return &wire.HealthCheck{Kind: "tcp", IntervalMs: 10_000, TimeoutMs: 2000, Failures: 3, Successes: 2}
}

func TestTCPCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		ch := w.checked(tcpCheck())
		want := func(what string, unhealthy bool) {
			t.Helper()
			if got := ch.unhealthy("web-1"); got != unhealthy {
				t.Errorf("%s: unhealthy %t", what, got)
			}
		}
		w.pass(17 * time.Second)
		want("after at most two failures", false)
		w.pass(20 * time.Second)
		want("after three", true)
		l, err := w.net.Host("app").Listen("app:80")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var asked atomic.Int64
		w.wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				asked.Add(1)
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			}
		})
		w.pass(25 * time.Second)
		want("after two successes", false)
		before := asked.Load()
		w.pass(100 * time.Second)
		if got := asked.Load() - before; got < 8 || got > 12 {
			t.Errorf("%d checks in 100 s", got)
		}
		// Silence fails as well, after the timeout.
		w.net.Silence("app", "r1")
		w.pass(45 * time.Second)
		want("after silence", true)
		// What is not checked is well.
		ch.check(2, nil)
		w.pass(time.Second)
		want("without a check", false)
		ch.check(3, &wire.HealthCheck{Kind: "icmp", IntervalMs: 1})
		w.pass(time.Minute)
		want("with a check that is not understood", false)
	})
}

func TestHTTPCheck(t *testing.T) {
	inWorld(t, func(w *world) {
		check := tcpCheck()
		check.Kind, check.Path = "http", "/ready?deep=1"
		l, err := w.net.Host("app").Listen("app:80")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var answer atomic.Value
		answer.Store("HTTP/1.1 204 No Content\r\n\r\n")
		w.wg.Go(func() { serveAnswer(l, &answer) })
		ch := w.checked(check)
		for _, c := range []struct {
			answer    string
			unhealthy bool
		}{
			{"HTTP/1.1 204 No Content\r\n\r\n", false},
			{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", true},
			{"HTTP/1.1 302 Found\r\nLocation: http://elsewhere:1/\r\n\r\n", false},
			{"SSH-2.0-x\r\n", true},
			{"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nmore never comes", false},
			{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", true},
		} {
			answer.Store(c.answer)
			w.pass(45 * time.Second)
			if got := ch.unhealthy("web-1"); got != c.unhealthy {
				t.Errorf("%.40q: unhealthy %t", c.answer, got)
			}
		}
	})
}

// serveAnswer answers what is asked for on every connection, if it is a check.
func serveAnswer(l net.Listener, answer *atomic.Value) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 1024)
		n, _ := c.Read(buf)
		if strings.HasPrefix(string(buf[:n]), http.MethodGet+" /ready?deep=1 HTTP/1.1\r\nHost: app:80\r\n") {
			_, _ = io.WriteString(c, answer.Load().(string))
		}
		c.Close()
	}
}
