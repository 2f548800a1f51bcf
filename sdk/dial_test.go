// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestDialAndListen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.DialService(t.Context(), "echo", DialOptions{Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		if conn.Service() != "echo" || conn.Peer() != (ginnel.Peer{Role: ginnel.RoleIdentity, ID: "bob"}) || conn.Circuit() == "" {
			t.Errorf("got %s, %s, %q", conn.Service(), conn.Peer(), conn.Circuit())
		}
		x := conn.Explain()
		if x == nil || len(x.Path) != 2 || len(x.Candidates) != 1 || len(x.EdgeRouters) != 2 || len(x.Steps) != 3 {
			t.Errorf("got explanation %+v", x)
		}
		want := bytes.Repeat([]byte("ginnel"), 100_000)
		go func() {
			_, _ = conn.Write(want)
			_ = conn.CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
		}
		_ = conn.Close()
		<-conn.Done()
		if err := alice.Shutdown(within10s(t)); err != nil {
			t.Error(err)
		}
		if _, err := alice.Dial(t.Context(), "echo"); codeOf(t, err) != ginnel.Cancelled {
			t.Errorf("after Shutdown: got %v", err)
		}
	})
}

func TestHTTPOverDialAndListen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.serve(&wire.ServiceInfo{Id: "web", CanDial: true, CanBind: true, Intercept: &wire.InterceptInfo{
			Addresses: []string{"web.internal"}, Ports: []string{"80"},
		}})
		l, err := w.client("bob").Listen("web", ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "you asked for "+r.URL.Path)
		})}
		done := make(chan error, 1)
		go func() { done <- server.Serve(l) }()
		<-l.Bound()
		alice := w.client("alice")
		transport := &http.Transport{DialContext: alice.DialContext}
		client := &http.Client{Transport: transport}
		for _, url := range []string{"http://web:80/a", "http://web.internal/a"} {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || string(body) != "you asked for /a" {
				t.Errorf("%s: got %q, %v", url, body, err)
			}
		}
		resp, err := client.Get("http://elsewhere.example/")
		if err == nil {
			_ = resp.Body.Close()
		}
		if codeOf(t, err) != ginnel.InvalidService {
			t.Errorf("got %v", err)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func TestL38_GivingUpCancelsTheSetUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want ginnel.Code
	}{
		{"cancelled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, ginnel.Cancelled},
		{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, ginnel.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, "r1")
				w.hold = true
				ctx, cancel := tt.ctx(t.Context())
				defer cancel()
				start := time.Now()
				_, err := w.client("alice").Dial(ctx, "web")
				if codeOf(t, err) != tt.want || time.Since(start) != time.Second {
					t.Errorf("got %v after %v", err, time.Since(start))
				}
				synctest.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.cancelled != 1 {
					t.Errorf("got %d cancels, want 1", w.cancelled)
				}
				if ms := w.dials[0].GetDeadlineMs(); tt.want == ginnel.DeadlineExceeded && ms != 800 {
					t.Errorf("the controller was told %d ms, want 800", ms)
				}
			})
		})
	}
}

// A controller that has restarted has another boot id than the edge router
// knew: refused once, and the caller sees nothing of it.
func TestL109_SignedAgainForTheRightAudience(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		pass(time.Second)
		w.mu.Lock()
		w.boot = "b2"
		w.mu.Unlock()
		conn, err := alice.Dial(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.dials) != 1 || w.dials[0].GetAudience().GetBoot() != "b2" {
			t.Errorf("got dials %v", w.dials)
		}
	})
}

// The controller's clock counts, not this machine's.
func TestClockIsTheControllers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		pass(time.Hour)
		if _, err := alice.Dial(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if off := time.Since(time.Unix(0, w.dials[0].GetAudience().GetClock())).Abs(); off > time.Second {
			t.Errorf("clock is off by %v", off)
		}
	})
}

func TestL35_AllEdgeRoutersGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		alice := w.client("alice")
		pass(10 * time.Second)
		w.kill("r1")
		w.kill("r2")
		start := time.Now()
		_, err := alice.Dial(t.Context(), "web")
		if codeOf(t, err) != ginnel.EdgeRouterUnavailable || time.Since(start) > time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		pass(10 * time.Second)
		start = time.Now()
		_, err = alice.DialContext(t.Context(), "tcp", "web:80")
		if codeOf(t, err) != ginnel.InvalidService && codeOf(t, err) != ginnel.EdgeRouterUnavailable || time.Since(start) > 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestNoEdgeRouterAtTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.kill("r1")
		start := time.Now()
		_, err := w.client("alice").Dial(t.Context(), "web")
		if codeOf(t, err) != ginnel.EdgeRouterUnavailable || time.Since(start) > 100*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestFirstConnectionsAreWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.net.SetLatency("", "r1", 500*time.Millisecond)
		echo(t, w.client("bob"), "echo", ListenOptions{})
		if _, err := w.client("alice").Dial(t.Context(), "echo"); err != nil {
			t.Error(err)
		}
	})
}

func TestEdgeRouterLostInADial(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2", "r3")
		w.net.SetLatency("alice", "r2", 40*time.Millisecond)
		w.net.SetLatency("alice", "r3", 40*time.Millisecond)
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		pass(5 * time.Second)
		w.mu.Lock()
		w.hold = true
		w.mu.Unlock()
		time.AfterFunc(time.Second, func() {
			w.mu.Lock()
			w.hold = false
			w.mu.Unlock()
			w.kill("r1")
		})
		conn, err := alice.Dial(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

func TestL69_NoController(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.Dial(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.boot = ""
		w.mu.Unlock()
		pass(10 * time.Minute)
		start := time.Now()
		_, err = alice.Dial(t.Context(), "echo")
		if codeOf(t, err) != ginnel.ControllerUnavailable || time.Since(start) > 0 {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if _, err := conn.Write([]byte("still here")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 10)); err != nil {
			t.Error(err)
		}
	})
}

// A controller that does not know for sure, out of an old cache, says BUSY: another
// one is asked at once, whichever of them came first.
func TestL45_AnotherControllerKnows(t *testing.T) {
	for _, stale := range []string{"c1", "c2"} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, "r1")
			w.also = []string{"c2"}
			alice := w.client("alice")
			echo(t, w.client("bob"), "echo", ListenOptions{})
			w.mu.Lock()
			w.judge = func(d *wire.Dial) *wire.Failure {
				if d.GetAudience().GetController() == stale {
					return wire.FailureOf(&ginnel.DialError{Code: ginnel.Busy, Message: "old", RetryAfter: ginnel.Duration(time.Second)})
				}
				return nil
			}
			w.mu.Unlock()
			began := time.Now()
			for range 20 {
				conn, err := alice.Dial(within10s(t), "echo")
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
			}
			if took := time.Since(began); took >= 100*time.Millisecond {
				t.Errorf("took %s", took)
			}
			w.mu.Lock()
			w.judge = func(*wire.Dial) *wire.Failure { return fail(ginnel.NotAuthorized, "no dial policy") }
			w.mu.Unlock()
			if _, err := alice.Dial(within10s(t), "echo"); codeOf(t, err) != ginnel.NotAuthorized {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestBusyIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		start := time.Now()
		w.judge = func(*wire.Dial) *wire.Failure {
			if time.Since(start) >= 2*time.Second {
				return nil
			}
			return wire.FailureOf(&ginnel.DialError{Code: ginnel.Busy, Message: "starting", RetryAfter: ginnel.Duration(time.Second)})
		}
		alice := w.client("alice")
		if _, err := alice.Dial(t.Context(), "echo"); err != nil || time.Since(start) < 2*time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		w.judge = func(*wire.Dial) *wire.Failure {
			return wire.FailureOf(&ginnel.DialError{Code: ginnel.Busy, RetryAfter: ginnel.Duration(time.Second)})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		if _, err := alice.Dial(ctx, "echo"); codeOf(t, err) != ginnel.Busy || ctx.Err() != nil {
			t.Errorf("got %v, want BUSY before the deadline", err)
		}
	})
}

// A dial whose time ends while one controller does not answer tells what another one
// has said before: that may be why.
func TestDeadlineTellsWhatWasHeard(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.also, w.hold = []string{"c2"}, true
		var said atomic.Int32
		w.judge = func(d *wire.Dial) *wire.Failure {
			if said.Add(1) > 1 {
				return nil
			}
			return wire.FailureOf(&ginnel.DialError{
				Code: ginnel.Busy, Message: "too many dials at " + d.GetAudience().GetController(), RetryAfter: ginnel.Duration(time.Second),
				Attempts: []ginnel.Attempt{{Terminator: "t1", Path: []ginnel.RouterID{"r1"}, Code: ginnel.RouterErrConnRefused}},
			})
		}
		alice := w.client("alice")
		_, err := alice.Dial(within10s(t), "echo")
		d, ok := errors.AsType[*ginnel.DialError](err)
		if codeOf(t, err) != ginnel.DeadlineExceeded || !ok || !strings.Contains(err.Error(), "BUSY: too many dials at c") || len(d.Attempts) != 1 {
			t.Errorf("got %v, attempts %v", err, d.Attempts)
		}
		if n := said.Load(); n != 2 {
			t.Errorf("%d dials were heard, want one at each controller", n)
		}
		_, err = alice.Dial(within10s(t), "echo")
		if codeOf(t, err) != ginnel.DeadlineExceeded || strings.Contains(err.Error(), "BUSY") {
			t.Errorf("got %v, where nobody has said anything", err)
		}
	})
}

// An edge router that takes no new circuits is not asked again while another does.
func TestQuiescedEdgeRouterIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		w.net.SetLatency("alice", "r2", 40*time.Millisecond)
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		pass(5 * time.Second)
		asked := make(map[string]int)
		closed := map[string]bool{"r1": true}
		w.judge = func(d *wire.Dial) *wire.Failure {
			asked[d.GetRouter()]++
			if closed[d.GetRouter()] {
				return wire.FailureOf(ginnel.Errorf(ginnel.EdgeRouterUnavailable, "router %s is quiesced", d.GetRouter()))
			}
			return nil
		}
		for range 2 {
			conn, err := alice.Dial(t.Context(), "echo")
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		if asked["r1"] != 1 || asked["r2"] != 2 {
			t.Errorf("asked %v", asked)
		}
		closed["r2"] = true
		if _, err := alice.Dial(t.Context(), "echo"); codeOf(t, err) != ginnel.EdgeRouterUnavailable || !strings.Contains(err.Error(), "is quiesced") {
			t.Errorf("got %v", err)
		}
	})
}

func TestErrorsComeUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.judge = func(*wire.Dial) *wire.Failure {
			return wire.FailureOf(&ginnel.DialError{
				Code: ginnel.RouterErrConnRefused, Message: "refused", Circuit: "c9",
				Attempts: []ginnel.Attempt{{Terminator: "t1", Path: []ginnel.RouterID{"r1"}, Code: ginnel.RouterErrConnRefused}},
			})
		}
		_, err := w.client("alice").Dial(t.Context(), "web")
		d, ok := errors.AsType[*ginnel.DialError](err)
		if !ok || d.Code != ginnel.RouterErrConnRefused || d.Circuit != "c9" || len(d.Attempts) != 1 || d.Attempts[0].Terminator != "t1" {
			t.Errorf("got %#v", err)
		}
	})
}

// A ticket for somebody or something else is refused, and a peer that is not the
// ticket's is not talked to.
func TestL107_TicketsAreChecked(t *testing.T) {
	for name, mangle := range map[string]func(*wire.Ticket){
		"client":  func(t *wire.Ticket) { t.Client = "mallory" },
		"service": func(t *wire.Ticket) { t.Service = "other" },
		"dial":    func(t *wire.Ticket) { t.DialHash = []byte("x") },
		"peer":    func(t *wire.Ticket) { t.Peer = "mallory" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, "r1")
				echo(t, w.client("bob"), "echo", ListenOptions{})
				w.mangle = mangle
				_, err := w.client("alice").Dial(t.Context(), "echo")
				if codeOf(t, err) != ginnel.NotAuthenticated {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestSecondDialResumesTLS(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		alice := w.client("alice")
		for _, want := range []bool{false, true} {
			conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if conn.end.Resumed() != want {
				t.Errorf("got resumed %t, want %t", !want, want)
			}
			_, _ = conn.Write([]byte("x")) // the session comes with the first bytes
			_, _ = io.ReadFull(conn, make([]byte, 1))
			_ = conn.Close()
		}
		if full, resumed := alice.Handshakes(); full != 1 || resumed != 1 {
			t.Errorf("counted %d full handshakes and %d resumed", full, resumed)
		}
	})
}

func TestNoResumption(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		echo(t, bob, "echo", ListenOptions{})
		alice := w.clientWith("alice", Options{NoResumption: true})
		for range 2 {
			conn, err := alice.DialService(t.Context(), "echo", DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte("x"))
			_, _ = io.ReadFull(conn, make([]byte, 1))
			_ = conn.Close()
		}
		for name, c := range map[string]*Client{"dialing": alice, "hosting": bob} {
			if full, resumed := c.Handshakes(); full != 2 || resumed != 0 {
				t.Errorf("%s: counted %d full handshakes and %d resumed", name, full, resumed)
			}
		}
	})
}

func TestUseAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		l := echo(t, bob, "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.Dial(t.Context(), "echo")
		if err != nil {
			t.Fatal(err)
		}
		_ = alice.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("read from a closed client's connection")
		}
		_ = bob.Close()
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := bob.Listen("echo", ListenOptions{}); err == nil {
			t.Error("listens on a closed client")
		}
	})
}
