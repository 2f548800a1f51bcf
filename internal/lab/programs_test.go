// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// tunneler gives where a tunneler listens.
func (w *world) tunneler(identity string) lab.TunnelerStatus {
	w.t.Helper()
	for _, c := range w.Status().Clients {
		if c.Identity == identity {
			return c.Tunnelers[0]
		}
	}
	w.t.Fatalf("%s has no tunneler", identity)
	return lab.TunnelerStatus{}
}

// viaProxy connects to the listener that stands for a target.
func (w *world) viaProxy(target string) (net.Conn, error) {
	for _, p := range w.tunneler("alice").Proxy {
		if p.Target == target {
			return net.Dial("tcp", p.Listen)
		}
	}
	return nil, fmt.Errorf("no proxy for %s", target)
}

// viaConnect asks the tunneler's proxy for a target, by HTTP CONNECT.
func (w *world) viaConnect(target string) (net.Conn, error) {
	conn, err := net.Dial("tcp", w.tunneler("alice").SOCKS)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", target); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	// Nothing follows the answer before we have sent something.
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // it has none: what comes is the way itself
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// TestL60_AnswerAfterHalfClose sends 1 KiB, ends its direction, and wants 10 MiB
// and the end back, for each kind of client and host.
func TestL60_AnswerAfterHalfClose(t *testing.T) {
	t.Parallel()
	const asked, answered = 1 << 10, 10 << 20
	address := server(t, func(conn *net.TCPConn) {
		if n, _ := io.Copy(io.Discard, conn); n == asked {
			_, _ = io.CopyN(conn, stream(), answered)
			_ = conn.CloseWrite()
		}
	})
	w := open(t, fmt.Sprintf(`
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services:
  - {name: by-router, roles: [any], intercept: {addresses: [router.internal], ports: ["80"]}, terminators: [{router: r2, address: "tcp:%[1]s"}]}
  - {name: by-host, roles: [any], intercept: {addresses: [host.internal], ports: ["80"]}}
hosts: [{identity: bob, service: by-host, address: "tcp:%[1]s"}]
policies: [{kind: dial, identities: ["#staff"], services: ["#any"]}]
tunnelers:
  - identity: alice
    socks: "127.0.0.1:0"
    proxy: [{listen: "127.0.0.1:0", target: "router.internal:80"}, {listen: "127.0.0.1:0", target: "host.internal:80"}]
`, address), lab.Options{Plain: true})
	client := w.client("alice")
	for service, name := range map[string]string{"by-router": "router.internal:80", "by-host": "host.internal:80"} {
		for kind, dial := range map[string]func() (io.ReadWriteCloser, error){
			"sdk":     func() (io.ReadWriteCloser, error) { return client.Dial(t.Context(), service) },
			"proxy":   func() (io.ReadWriteCloser, error) { return w.viaProxy(name) },
			"connect": func() (io.ReadWriteCloser, error) { return w.viaConnect(name) },
		} {
			t.Run(kind+" "+service, func(t *testing.T) {
				conn, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				_, werr := conn.Write(make([]byte, asked))
				cerr := conn.(halfCloser).CloseWrite()
				n, err := io.Copy(io.Discard, conn)
				if err := errors.Join(werr, cerr, err); err != nil || n != answered {
					t.Errorf("%d bytes, %v; want %d and the end", n, err, answered)
				}
			})
		}
	}
	w.eventually(w.noCircuits)
}

// web is a network with a web server behind a host, by name for a tunneler.
const web = `
routers: [{name: r1}, {name: r2, dial: router}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}, {name: carol}]
services:
  - {name: web, roles: [any], intercept: {addresses: [web.internal, "*.wild.internal"], ports: ["80", "8000-8010"]}}
  - {name: empty, roles: [any], intercept: {addresses: [empty.internal], ports: ["80"]}}
hosts: [{identity: bob, service: web, address: "tcp:WEB"}]
policies: [{kind: dial, identities: ["#staff"], services: ["#any"]}, {name: bind-empty, kind: bind, identities: ["@carol"], services: ["@empty"]}]
tunnelers: [{identity: alice, dns: "127.0.0.1:0", zones: [internal], socks: "127.0.0.1:0", proxy: [{listen: "127.0.0.1:0", target: "empty.internal:80"}]}]
`

func openWeb(t *testing.T) *world {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from %s", r.Host)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return open(t, strings.ReplaceAll(web, "WEB", l.Addr().String()), lab.Options{})
}

// program runs a program that is not ours and gives what it says.
func program(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("there is no %s on this machine", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPrograms wants programs that know nothing of us to reach services by name.
func TestPrograms(t *testing.T) {
	t.Parallel()
	w := openWeb(t)
	at := w.tunneler("alice")
	t.Run("curl", func(t *testing.T) {
		for host, url := range map[string]string{
			"web.internal": "http://web.internal/", "a.b.wild.internal:8005": "http://a.b.wild.internal:8005/",
		} {
			got := program(t, "curl", "-sS", "--fail", "--noproxy", "", "--socks5-hostname", at.SOCKS, url)
			if want := "hello from " + host; got != want {
				t.Errorf("%s: got %q, want %q", url, got, want)
			}
		}
	})
	t.Run("dig", func(t *testing.T) {
		host, port, err := net.SplitHostPort(at.DNS)
		if err != nil {
			t.Fatal(err)
		}
		for _, transport := range []string{"+notcp", "+tcp"} {
			got := strings.TrimSpace(program(t, "dig", "+short", "+time=3", transport, "@"+host, "-p", port, "web.internal"))
			if !strings.HasPrefix(got, "100.") || strings.Contains(got, "\n") {
				t.Errorf("%s: got %q, want one address of 100.64.0.0/10", transport, got)
			}
			if got := program(t, "dig", "+time=3", transport, "@"+host, "-p", port, "other.internal"); !strings.Contains(got, "NXDOMAIN") {
				t.Errorf("%s: a name that is not ours: %s", transport, got)
			}
		}
	})
}

// TestL91_NoTerminator wants programs to hear at once that nobody hosts a service.
func TestL91_NoTerminator(t *testing.T) {
	t.Parallel()
	w := openWeb(t)
	w.took(2*time.Second, "the refusal", func() {
		if conn, err := w.viaConnect("empty.internal:80"); err == nil {
			_ = conn.Close()
			t.Error("connected to nobody")
		}
	})
	w.took(2*time.Second, "the reset", func() {
		conn, err := w.viaProxy("empty.internal:80")
		w.must(err)
		defer func() { _ = conn.Close() }()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v, want a reset", err)
		}
	})
}

// TestHTTPOverTheSDK serves and asks with nothing but the standard library's HTTP.
func TestHTTPOverTheSDK(t *testing.T) {
	t.Parallel()
	w := openWeb(t)
	carol := w.client("carol")
	l, err := carol.Listen("empty", sdk.ListenOptions{})
	w.must(err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err == nil {
			_, _ = w.Write(b)
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	w.eventually(func() error {
		if n := len(w.terminators("c1", "empty")); n == 0 || n != len(l.Routers()) {
			return fmt.Errorf("%d terminators, bound at %v", n, l.Routers())
		}
		return nil
	})
	transport := &http.Transport{DialContext: w.client("alice").DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for i := range 20 {
		text := strings.Repeat(fmt.Sprint(i), 10_000*i)
		resp, err := client.Post("http://empty.internal/", "text/plain", strings.NewReader(text))
		w.must(err)
		got, err := io.ReadAll(resp.Body)
		w.must(errors.Join(err, resp.Body.Close()))
		if string(got) != text {
			t.Fatalf("%d: %d bytes came back of %d", i, len(got), len(text))
		}
	}
}
