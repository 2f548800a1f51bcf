// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/splice"
)

func dialTCP(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn.(*net.TCPConn)
}

// wantReset reads until the connection ends and wants that to be a reset.
func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("connection ended with %v, want a reset", err)
	}
}

// wantDialReset wants a new connection to be reset, be it before the dial has returned.
func wantDialReset(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	wantReset(t, conn)
}

func TestProxy_CarriesBothWaysAndHalfCloses(t *testing.T) {
	d := newTwin(web("web.internal"))
	d.dial = upperEcho(t)
	tunnel := run(t, Config{Dialer: d, Proxies: []Proxy{{"127.0.0.1:0", "WEB.internal:80"}}})
	conn := dialTCP(t, tunnel.Addresses().Proxies[0])
	text := strings.Repeat("0123456789abcdef", 20_000)
	go func() {
		_, _ = io.WriteString(conn, text)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if want := "web web.internal: " + text; err != nil || string(got) != want {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
	}
}

func TestL91_FailedDialIsResetAtOnce(t *testing.T) {
	d := newTwin(web("web.internal"))
	known := make(chan time.Time, 1)
	best := time.Hour // of a few, since the machine may be busy with other tests
	d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) {
		known <- time.Now()
		return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "none")
	}
	tunnel := run(t, Config{Dialer: d, Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}})
	for range 5 {
		wantDialReset(t, tunnel.Addresses().Proxies[0])
		best = min(best, time.Since(<-known))
	}
	if best > 100*time.Millisecond {
		t.Errorf("reset came %s after the failure was known, want within 100 ms", best)
	}
}

func TestL85_RemovedServiceResetsNewConnections(t *testing.T) {
	d := newTwin(web("web.internal"))
	d.dial = upperEcho(t)
	tunnel := run(t, Config{
		Dialer: d, DNS: "127.0.0.1:0", Names: dns.Config{Zones: []string{"internal"}},
		Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}},
	})
	ask := func() int {
		answer, err := mdns.Exchange(new(mdns.Msg).SetQuestion("web.internal.", mdns.TypeA), tunnel.Addresses().DNS)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Rcode
	}
	if got := ask(); got != mdns.RcodeSuccess {
		t.Fatalf("before: got %s", mdns.RcodeToString[got])
	}
	d.set()
	deadline := time.Now().Add(5 * time.Second)
	for ask() != mdns.RcodeNameError {
		if time.Now().After(deadline) {
			t.Fatal("still answered after 5 s")
		}
	}
	wantDialReset(t, tunnel.Addresses().Proxies[0])
}

// A listener whose name is nobody's, or whose port is not served, says so at the start,
// and once.
func TestProxy_LeadsToNoService(t *testing.T) {
	var log lines
	d := newTwin(web("web.internal"))
	proxies := []Proxy{{"127.0.0.1:0", "web.internal:80"}, {"127.0.0.1:0", "wbe.internal:80"}, {"127.0.0.1:0", "web.internal:81"}, {"udp:127.0.0.1:0", "web.internal:80"}}
	tunnel := run(t, Config{Dialer: d, Proxies: proxies, Log: slog.New(slog.NewTextHandler(&log, nil))})
	said := func() (all []string) {
		for _, line := range log.all() {
			if strings.Contains(line, "level=WARN") {
				all = append(all, line[strings.Index(line, "msg="):])
			}
		}
		return all
	}
	want := []string{
		`msg="listener leads to no service" front_end=127.0.0.1:0 err="\"wbe.internal\": no service that may be dialed has this name"`,
		`msg="listener leads to no service" front_end=127.0.0.1:0 err="\"web.internal\" port 81: no service that may be dialed has this port of the name"`,
		`msg="listener leads to no service" front_end=udp:127.0.0.1:0 err="\"web.internal\" port 80: no service that may be dialed has this port of the name"`,
	}
	if got := said(); !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	other := web("wbe.internal")
	other.ID = "other"
	d.set(web("web.internal"), other)
	eventually(t, func() bool { _, _, served := tunnel.Names().Find("wbe.internal", 80, "tcp"); return served })
	d.set(web("web.internal"))
	eventually(t, func() bool { return len(said()) > 3 })
	if got := said(); got[3] != want[0] || len(got) != 4 {
		t.Errorf("a name that came and went: got %s", strings.Join(got, "\n"))
	}
}

// eventually asks again and again until it is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not so after 20 s")
		}
	}
}

// lines is what was written, line by line.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

func TestRelay_PassesResetsOn(t *testing.T) {
	for _, direction := range []string{"program", "fabric"} {
		program, programFar := pair(t)
		fabric, fabricFar := pair(t)
		resetting, other := programFar, fabricFar
		if direction == "fabric" {
			resetting, other = fabricFar, programFar
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			relay(t.Context(), program, fabric)
		}()
		splice.Abort(resetting)
		_ = other.SetDeadline(time.Now().Add(10 * time.Second))
		wantReset(t, other)
		<-done
	}
}

// abortable is a connection of the fabric that notes how it was ended.
type abortable struct {
	net.Conn
	aborted chan struct{}
}

func (a *abortable) Abort() error {
	a.aborted <- struct{}{}
	return a.Close()
}

func TestRelay_TellsTheFabricOfAReset(t *testing.T) {
	program, programFar := pair(t)
	fabric, _ := pair(t)
	conn := &abortable{fabric, make(chan struct{}, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		relay(t.Context(), program, conn)
	}()
	splice.Abort(programFar)
	<-conn.aborted
	<-done
}

func TestRelay_EndsWithItsContext(t *testing.T) {
	program, programFar := pair(t)
	fabric, fabricFar := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		relay(ctx, program, fabric)
	}()
	cancel()
	<-done
	wantReset(t, programFar)
	wantReset(t, fabricFar)
}

func TestRelay_WithoutHalfClose(t *testing.T) {
	program, programFar := pair(t)
	fabric, fabricFar := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		relay(t.Context(), program, fabric)
	}()
	_, _ = programFar.Write([]byte("hello"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(fabricFar, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = programFar.CloseWrite()
	if _, err := fabricFar.Read(got); err == nil {
		t.Error("the end of the program's direction is not passed on")
	}
	<-done
}

func TestFrontEnd_OverTheBoundIsResetAtOnce(t *testing.T) {
	d := newTwin(web("web.internal"))
	entered, release := make(chan struct{}), make(chan struct{})
	d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) {
		entered <- struct{}{}
		<-release
		return nil, ginnel.NoPath
	}
	tunnel := run(t, Config{Dialer: d, Connections: 1, Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}})
	first := dialTCP(t, tunnel.Addresses().Proxies[0])
	<-entered
	wantDialReset(t, tunnel.Addresses().Proxies[0])
	close(release)
	wantReset(t, first)
}

func TestFrontEnd_GraceLetsConnectionsEnd(t *testing.T) {
	d := newTwin(web("web.internal"))
	dialed := make(chan struct{})
	echo := upperEcho(t)
	d.dial = func(ctx context.Context, s ginnel.ServiceID, m Meta) (net.Conn, error) {
		defer close(dialed)
		return echo(ctx, s, m)
	}
	tunnel, err := Open(Config{Dialer: d, Grace: time.Minute, Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- tunnel.Run(ctx) }()
	<-tunnel.Ready()
	conn := dialTCP(t, tunnel.Addresses().Proxies[0])
	<-dialed
	cancel()
	_, _ = io.WriteString(conn, "bye")
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "web web.internal: bye" {
		t.Errorf("got %q, %v", got, err)
	}
	if err := <-end; err != nil {
		t.Error(err)
	}
}

// shortcut is a connection of the fabric that takes the bytes of a TCP connection, and
// gives it its own, by itself.
type shortcut struct {
	net.Conn
	in, out chan string // what kind it was asked to take them of
}

func (s *shortcut) ReadFrom(r io.Reader) (int64, error) {
	s.in <- fmt.Sprintf("%T", r)
	return io.Copy(s.Conn, r)
}

func (s *shortcut) WriteTo(w io.Writer) (int64, error) {
	s.out <- fmt.Sprintf("%T", w)
	return io.Copy(w, s.Conn)
}

func (s *shortcut) CloseWrite() error { return splice.CloseWrite(s.Conn) }

// Whatever way a program comes by, its bytes take the short way, behind those that came
// with its request.
func TestEveryProxyTakesTheShortWay(t *testing.T) {
	taken := &shortcut{in: make(chan string, 1), out: make(chan string, 1)}
	d := newTwin(web("web.internal"))
	d.dial = func(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
		conn, err := upperEcho(t)(ctx, service, meta)
		return &shortcut{conn, taken.in, taken.out}, err
	}
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0", Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}})
	at := tunnel.Addresses()
	for _, way := range []struct{ name, address, request, reply string }{
		{"listener", at.Proxies[0], "", ""},
		{"socks", at.SOCKS, "\x05\x01\x00\x05\x01\x00\x03\x0cweb.internal\x00\x50", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"},
		{"connect", at.SOCKS, "CONNECT web.internal:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\n"},
	} {
		conn := dialTCP(t, way.address)
		_, _ = io.WriteString(conn, way.request+"early ")
		if in, out := <-taken.in, <-taken.out; in != "*net.TCPConn" || out != in {
			t.Errorf("%s: bytes of %s, to %s", way.name, in, out)
		}
		_, _ = io.WriteString(conn, "late")
		_ = conn.CloseWrite()
		got, err := io.ReadAll(conn)
		if want := way.reply + "web web.internal: early late"; err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", way.name, got, err, want)
		}
	}
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	site := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, "site ", r.Host) })}
	go func() { _ = site.Serve(listener) }()
	t.Cleanup(func() { _ = site.Close() })
	d := newTwin(web("web.internal"))
	d.dial = func(ctx context.Context, _ ginnel.ServiceID, _ Meta) (net.Conn, error) {
		return connectTo(ctx, &net.Dialer{}, ginnel.Address("tcp:"+listener.Addr().String()))
	}
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0", Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}})
	socks, direct := tunnel.Addresses().SOCKS, tunnel.Addresses().Proxies[0]
	ip := tunnel.Names().Live()[0].Address.String()
	for _, test := range []struct {
		args []string
		want string
		exit int
	}{
		{[]string{"--socks5-hostname", socks, "http://web.internal/"}, "site web.internal", 0},
		{[]string{"--socks5", socks, "http://" + ip + "/"}, "site " + ip, 0},
		{[]string{"--proxytunnel", "--proxy", "http://" + socks, "http://web.internal/"}, "site web.internal", 0},
		{[]string{"http://" + direct + "/"}, "site " + direct, 0},
		{[]string{"--socks5-hostname", socks, "http://localhost/"}, "", 97},
		{[]string{"--proxytunnel", "--proxy", "http://" + socks, "http://localhost/"}, "", 56},
	} {
		cmd := exec.Command(curl, append([]string{"--silent", "--noproxy", "", "--max-time", "10"}, test.args...)...)
		got, err := cmd.Output()
		if string(got) != test.want || cmd.ProcessState.ExitCode() != test.exit {
			t.Errorf("curl %v: got %q, %v; want %q, exit %d", test.args, got, err, test.want, test.exit)
		}
	}
}

func TestForward(t *testing.T) {
	program, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := program.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte("got "), text...))
			_ = conn.Close()
		}
	}()
	fabric, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	connect := func(ctx context.Context, _ net.Conn) (net.Conn, error) {
		return connectTo(ctx, &net.Dialer{}, ginnel.Address("tcp:"+program.Addr().String()))
	}
	go func() { end <- forward(ctx, fabric, "program", connect, nil) }()
	conn := dialTCP(t, fabric.Addr().String())
	_, _ = io.WriteString(conn, "hello")
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "got hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = program.Close()
	wantDialReset(t, fabric.Addr().String())
	cancel()
	if err := <-end; err != nil {
		t.Error(err)
	}
}

func TestConnect_Codes(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, test := range []struct {
		ctx     context.Context
		address ginnel.Address
		want    ginnel.Code
	}{
		{t.Context(), ginnel.Address("tcp:" + gone.Addr().String()), ginnel.RouterErrConnRefused},
		{t.Context(), "tls:127.0.0.1:1", ginnel.RouterErrMisconfiguredTerminator},
		{cancelled, "tcp:127.0.0.1:1", ginnel.Cancelled},
		{expired, "tcp:127.0.0.1:1", ginnel.RouterErrDialTimedOut},
	} {
		if _, err := connectTo(test.ctx, &net.Dialer{}, test.address); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %s", test.address, err, test.want)
		}
	}
}

func TestOpen_Failures(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = used.Close() }()
	at := used.Addr().String()
	for _, cfg := range []Config{
		{SOCKS: at},
		{DNS: at},
		{Proxies: []Proxy{{at, "a:1"}}},
		{SOCKS: "127.0.0.1:0", Proxies: []Proxy{{"127.0.0.1:0", "a"}}},
		{Names: dns.Config{Zones: []string{"a b"}}},
		{Names: dns.Config{Range: netip.MustParsePrefix("::/0")}},
	} {
		cfg.Dialer = newTwin()
		if tunnel, err := Open(cfg); err == nil || tunnel != nil {
			t.Errorf("%+v: got %v, %v; want an error", cfg, tunnel, err)
		}
	}
}
