// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/sdk"
)

// diamond has two ways from r1 to r4, the one over r2 much cheaper. Behind r4
// are an echo server that r4 connects to and one that bob hosts; bob may bind
// at r4 and r3, alice enters at r1 and r3. ECHO is the address of the server.
const diamond = `
controllers: [{name: c1}]
routers: [{name: r1}, {name: r2}, {name: r3}, {name: r4}]
links:
  - {a: r1, b: r2, staticCost: 1}
  - {a: r2, b: r4, staticCost: 1}
  - {a: r1, b: r3, staticCost: 3000}
  - {a: r3, b: r4, staticCost: 3000}
identities:
  - {name: alice, roles: [staff], edgeRouters: [r1, r3]}
  - {name: bob, edgeRouters: [r3, r4]}
  - {name: carol, edgeRouters: [r2]}
services:
  - {name: echo, roles: [internal], terminators: [{router: r4, address: "tcp:ECHO"}]}
  - {name: hosted, roles: [internal]}
  - {name: late, roles: [internal]}
hosts: [{identity: bob, service: hosted, address: "tcp:ECHO"}]
policies:
  - {name: staff, kind: dial, identities: ["#staff"], services: ["#internal"]}
  - {name: late, kind: bind, identities: ["@bob", "@carol"], services: ["@late"]}
`

// world is a lab with a test around it.
type world struct {
	*lab.Lab
	t testing.TB
}

// open opens the lab that text describes and waits until it is ready. ECHO in
// it is replaced by the address of an echo server.
func open(t testing.TB, text string, opts lab.Options) *world {
	t.Helper()
	f, err := lab.Parse("lab.yaml", []byte(strings.ReplaceAll(text, "ECHO", echoServer(t))))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("GINNEL_TEST_LOG") != "" {
		opts.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := lab.Open(ctx, f, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	w := &world{l, t}
	w.ready()
	return w
}

// patience is for how long a test waits, for a machine that is busy. What has to be
// quick is measured, by took.
const patience = 2 * time.Minute

// ready waits until the network is ready.
func (w *world) ready() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.Wait(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// must ends the test on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// admin is the API of a controller that lives.
func (w *world) admin() api.Backend { return w.Controller("c1").Backend() }

// client gives a client in an identity's name.
func (w *world) client(identity string) *sdk.Client { return w.clientOver(identity, sdk.Options{}) }

// clientAt gives a client that is far from all edge routers but one.
func (w *world) clientAt(identity, router string) *sdk.Client {
	w.t.Helper()
	return w.clientWith(identity, router, nil)
}

// clientWith is clientAt with a log; nil: none.
func (w *world) clientWith(identity, router string, log *slog.Logger) *sdk.Client {
	w.t.Helper()
	shape := pipe.NewShape(transport.OS{})
	w.t.Cleanup(shape.Close)
	for _, r := range w.Status().Routers {
		if r.Name != router {
			shape.SetLatency(ginnel.Address(r.Address).HostPort(), 30*time.Millisecond)
		}
	}
	c := w.clientOver(identity, sdk.Options{
		Log:         log,
		DialNetwork: func(ctx context.Context, _, address string) (net.Conn, error) { return shape.Dial(ctx, address) },
	})
	w.eventually(func() error {
		for _, e := range c.EdgeRouters() {
			if !e.Connected || e.RTT == 0 {
				return fmt.Errorf("edge router %s is not connected and measured", e.ID)
			}
		}
		return nil
	})
	return c
}

// clientOnly gives a client that reaches one edge router and no other.
func (w *world) clientOnly(identity, router string) *sdk.Client {
	w.t.Helper()
	only := ""
	for _, r := range w.Status().Routers {
		if r.Name == router {
			only = ginnel.Address(r.Address).HostPort()
		}
	}
	return w.clientOver(identity, sdk.Options{DialNetwork: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != only {
			return nil, net.ErrClosed
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}})
}

func (w *world) clientOver(identity string, opts sdk.Options) *sdk.Client {
	w.t.Helper()
	path, err := w.Identity(identity)
	w.must(err)
	id, err := sdk.LoadIdentity(path)
	w.must(err)
	c, err := sdk.New(id, opts)
	w.must(err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// dial dials within five seconds.
func (w *world) dial(c *sdk.Client, service string) (*sdk.Conn, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	return c.DialService(ctx, ginnel.ServiceID(service), sdk.DialOptions{Explain: true})
}

// connect dials and ends the test if that fails.
func (w *world) connect(c *sdk.Client, service string) *sdk.Conn {
	w.t.Helper()
	conn, err := w.dial(c, service)
	if err != nil {
		w.t.Fatalf("dial %s: %v", service, err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// connectOver dials until the path is the one that is meant: round trips are
// measured anew all the time.
func (w *world) connectOver(c *sdk.Client, service string, path ...ginnel.RouterID) (conn *sdk.Conn) {
	w.t.Helper()
	w.eventually(func() (err error) {
		if conn, err = w.dial(c, service); err != nil {
			return err
		}
		if got := conn.Explain().Path; !slices.Equal(got, path) {
			_ = conn.Close()
			return errPath(got)
		}
		return nil
	})
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// eventually waits until what holds; the error of the last look is why not.
func (w *world) eventually(look func() error) time.Duration {
	w.t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return time.Since(began)
		}
		if took := time.Since(began); took > patience {
			w.t.Fatalf("after %s: %v", took, err)
		}
		<-tick.C
	}
}

// dialable waits until a dial succeeds and its connection echoes.
func (w *world) dialable(c *sdk.Client, service string) (path []ginnel.RouterID) {
	w.t.Helper()
	w.eventually(func() error {
		conn, err := w.dial(c, service)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		path = conn.Explain().Path
		return echo(conn, "hello")
	})
	return path
}

// terminators gives those of a service at a controller, stored or bound.
func (w *world) terminators(controller, service string) (online []api.Terminator) {
	w.t.Helper()
	all, err := w.Controller(controller).Backend().Terminators.List(w.t.Context())
	w.must(err)
	for _, t := range all {
		if t.Online && t.Service == ginnel.ServiceID(service) {
			online = append(online, t)
		}
	}
	return online
}

// rows counts the circuits that all routers have.
func (w *world) rows() (n int) {
	for _, r := range w.Status().Routers {
		n += r.Circuits
	}
	return n
}

// noRows is satisfied when no router has a row of a circuit. After an orderly end
// a row stays for ten seconds, to answer the RESUME of an end that missed it.
func (w *world) noRows() error {
	if n := w.rows(); n > 0 {
		return fmt.Errorf("%d rows of circuits are left", n)
	}
	return nil
}

// noCircuits is satisfied when no router reports an end of a circuit.
func (w *world) noCircuits() error {
	left, err := w.admin().Circuits.ListCircuits(w.t.Context())
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d circuits are left, the first is %v", len(left), left[0])
	}
	return err
}

// wantCode ends the test unless err is a DialError of the code.
func (w *world) wantCode(err error, code ginnel.Code) *ginnel.DialError {
	w.t.Helper()
	dial, ok := errors.AsType[*ginnel.DialError](err)
	if !ok || dial.Code != code {
		w.t.Fatalf("got %v, want %v", err, code)
	}
	return dial
}

// took ends the test if fn takes longer than it may.
func (w *world) took(most time.Duration, what string, fn func()) {
	w.t.Helper()
	began := time.Now()
	fn()
	if took := time.Since(began); took > slack*most {
		w.t.Fatalf("%s took %s, want at most %s", what, took, slack*most)
	}
}

// echo says something and wants it back.
func echo(conn net.Conn, text string) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("got %q back, want %q", got, text)
	}
	return conn.SetDeadline(time.Time{})
}

// halfCloser is a connection of which one direction can be ended.
type halfCloser interface{ CloseWrite() error }

// server serves TCP connections on loopback until the test ends.
func server(t testing.TB, serve func(conn *net.TCPConn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			running.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return l.Addr().String()
}

// echoServer gives back what it gets, and ends when the other side does.
func echoServer(t testing.TB) (address string) {
	return server(t, func(conn *net.TCPConn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{conn}, make([]byte, 64<<10))
	})
}

// errPath is a path that was not meant.
type errPath []ginnel.RouterID

func (e errPath) Error() string { return fmt.Sprintf("path over %v", []ginnel.RouterID(e)) }

// ends waits until a connection is ended with a code.
func (w *world) ends(conn interface{ Read([]byte) (int, error) }, code ginnel.Code) {
	w.t.Helper()
	_, err := conn.Read(make([]byte, 1))
	if !errors.Is(err, code) {
		w.t.Fatalf("the connection ended with %v, want %v", err, code)
	}
}

// edges counts the connections of SDKs to all routers.
func (w *world) edges() (n int) {
	for _, r := range w.Status().Routers {
		n += r.Edges
	}
	return n
}

// errCount is a number that was not meant.
type errCount struct{ got, want int }

func (e errCount) Error() string { return fmt.Sprintf("got %d, want %d", e.got, e.want) }

// containsWord reports whether text has a word.
func containsWord(text, word string) bool {
	return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == ':' }), word)
}
