// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// connectProxy is a CONNECT proxy on loopback.
type connectProxy struct {
	net.Listener
	answer string // in place of opening a way, if set
	auth   string // what Proxy-Authorization must be

	all   sync.WaitGroup
	mu    sync.Mutex
	asked []string
}

func startProxy(t *testing.T) *connectProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &connectProxy{Listener: l}
	p.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.all.Wait() })
	return p
}

func (p *connectProxy) serve(c net.Conn) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	p.mu.Unlock()
	switch {
	case p.answer != "":
		_, _ = io.WriteString(c, p.answer)
		return
	case r.Header.Get("Proxy-Authorization") != p.auth:
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
		return
	}
	target, err := net.Dial("tcp", r.Host)
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nsorry")
		return
	}
	defer target.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.all.Go(func() { _, _ = io.Copy(target, c); _ = target.(*net.TCPConn).CloseWrite() })
	_, _ = io.Copy(c, target)
}

func mustProxy(t *testing.T, text string) Proxy {
	t.Helper()
	p, err := ParseProxy(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// echoes accepts one connection after another and sends back what comes.
func echoes(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { defer c.Close(); _, _ = io.Copy(c, c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

func TestProxy(t *testing.T) {
	target := echoes(t)
	for _, user := range []string{"", "alice:s3cret@"} {
		p := startProxy(t)
		if user != "" {
			p.auth = "Basic YWxpY2U6czNjcmV0"
		}
		c, err := mustProxy(t, "http://"+user+p.Addr().String()).Network(OS{}).Dial(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello" {
			t.Errorf("got %q, %v", got, err)
		}
		_ = c.Close()
		if p.mu.Lock(); len(p.asked) != 1 || p.asked[0] != "CONNECT "+target {
			t.Errorf("asked %q", p.asked)
		}
		p.mu.Unlock()
	}
}

func TestProxyRefuses(t *testing.T) {
	target := echoes(t)
	for _, test := range []struct {
		name, answer, auth, target string
		status                     int
		says                       string
	}{
		{name: "forbidden", answer: "HTTP/1.1 403 Forbidden\r\nContent-Length: 1000000\r\n\r\nno", status: 403, says: "403 Forbidden"},
		{name: "needs a password", auth: "Basic x", status: 407, says: "refuses name and password"},
		{name: "target is down", auth: "Basic Ym9iOmhpZGRlbg==", target: "127.0.0.1:1", status: 502, says: "502 Bad Gateway"},
		{name: "no HTTP", answer: "SSH-2.0-x\r\n", says: "malformed"},
		{name: "closes", answer: "\r\n", says: "answer"},
		{name: "an endless head", answer: "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxProxyAnswer), says: "answer"},
		{name: "talks first", answer: "HTTP/1.1 200 OK\r\n\r\nhello", says: "more bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := startProxy(t)
			p.answer, p.auth = test.answer, test.auth
			if test.target == "" {
				test.target = target
			}
			_, err := mustProxy(t, "http://bob:hidden@"+p.Addr().String()).Network(OS{}).Dial(t.Context(), test.target)
			refused, ok := errors.AsType[*ProxyError](err)
			if !ok || refused.Status != test.status || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("got %v", err)
			}
			if errors.Is(err, ErrProxyAuth) != (test.status == 407) {
				t.Errorf("%v: is ErrProxyAuth: %t", err, errors.Is(err, ErrProxyAuth))
			}
		})
	}
}

func TestProxyIsDown(t *testing.T) {
	_, err := mustProxy(t, "http://127.0.0.1:1").Network(OS{}).Dial(t.Context(), "x.example:1")
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.HasPrefix(err.Error(), "proxy 127.0.0.1:1: ") {
		t.Errorf("got %v", err)
	}
}

// A proxy that takes the connection and says nothing is left when ctx ends.
func TestProxyIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = mustProxy(t, "http://"+l.Addr().String()).Network(OS{}).Dial(ctx, "x.example:1"); err == nil {
		t.Error("a way without an answer")
	}
}

func TestParseProxy(t *testing.T) {
	for text, want := range map[string]string{
		"http://a:8080": "a:8080", "http://a": "a:80", "http://[::1]:3128/": "[::1]:3128", "http://u:p@a:1": "a:1", "http://u@a:1": "a:1",
		"https://a:1": "", "a:1": "", "": "", "http://": "", "http://a:1/x": "", "http://a:0": "", "http://a:x": "", "http://a b:1": "", "socks5://a:1": "", "http://a:1?q": "",
	} {
		p, err := ParseProxy(text)
		if p.hostport != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, p.hostport, err)
		}
	}
}

// The password is in the request only.
func TestProxyHidesItsPassword(t *testing.T) {
	p := mustProxy(t, "http://alice:s3cret@a:1")
	text, err := p.MarshalText()
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "proxy", p)
	_, bad := ParseProxy("http://alice:s3cret@a:x")
	_, other := ParseProxy("ftp://alice:s3cret@a:1")
	_, opaque := ParseProxy("alice:s3cret@a:1")
	for _, shown := range []string{string(text), log.String(), fmt.Sprint(p), fmt.Sprintf("%v %s", p, p), bad.Error(), other.Error(), opaque.Error()} {
		if strings.Contains(shown, "s3cret") {
			t.Errorf("shown: %s", shown)
		}
	}
	if err != nil || !strings.Contains(log.String(), "alice") {
		t.Errorf("%v, %s", err, log.String())
	}
	if none := (Proxy{}); none.String() != "" || none.Network(OS{}) != Network(OS{}) {
		t.Error("the zero Proxy is not none")
	}
}
