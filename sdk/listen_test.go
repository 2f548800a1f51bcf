// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestL34_ClosedListenerRefusesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		l := echo(t, bob, "echo", ListenOptions{})
		alice := w.client("alice")
		pass(time.Second)
		bob.hosts.remove(l) // closed for dials, but no word of it sent
		start := time.Now()
		_, err := alice.Dial(t.Context(), "echo")
		if codeOf(t, err) != ginnel.RouterErrInvalidTerminator || time.Since(start) > time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		_ = l.Close()
		if _, err := l.Accept(); err == nil {
			t.Error("accepted after Close")
		}
		synctest.Wait()
		if _, err := alice.Dial(t.Context(), "echo"); codeOf(t, err) != ginnel.NoTerminators {
			t.Errorf("got %v", err)
		}
	})
}

func TestFullBacklogRefusesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		l, err := w.client("bob").Listen("web", ListenOptions{Backlog: 2})
		if err != nil {
			t.Fatal(err)
		}
		<-l.Bound()
		alice := w.client("alice")
		for range 2 {
			if _, err := alice.Dial(t.Context(), "web"); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		start := time.Now()
		_, err = alice.Dial(t.Context(), "web")
		if codeOf(t, err) != ginnel.RouterErrResourcesNotAvailable || time.Since(start) > 100*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := alice.Dial(t.Context(), "web"); err != nil {
			t.Errorf("got %v after one was accepted", err)
		}
	})
}

// closer counts how often it was closed.
type closer struct{ closed atomic.Int32 }

func (c *closer) Close() error {
	c.closed.Add(1)
	return nil
}

func TestConnectBeforeTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		var answer error
		backend := &closer{}
		var seen Incoming
		l, err := w.client("bob").Listen("web", ListenOptions{Connect: func(ctx context.Context, in Incoming) (io.Closer, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no deadline")
			}
			seen = in
			return backend, answer
		}})
		if err != nil {
			t.Fatal(err)
		}
		<-l.Bound()
		alice := w.client("alice")
		answer = ginnel.Errorf(ginnel.RouterErrConnRefused, "nobody there")
		if _, err := alice.Dial(t.Context(), "web"); codeOf(t, err) != ginnel.RouterErrConnRefused {
			t.Errorf("got %v", err)
		}
		answer = errors.New("not you")
		if _, err := alice.Dial(t.Context(), "web"); codeOf(t, err) != ginnel.RouterErrRejectedByApplication {
			t.Errorf("got %v", err)
		}
		answer = nil
		if _, err := alice.DialService(t.Context(), "web", DialOptions{Source: "10.0.0.1:5", Destination: "web:80"}); err != nil {
			t.Fatal(err)
		}
		conn, err := l.AcceptConn()
		if err != nil || conn.Backend() != io.Closer(backend) || conn.Incoming() != seen {
			t.Errorf("got %v, %v", conn, err)
		}
		if seen.Client != "alice" || seen.Service != "web" || seen.Source != "10.0.0.1:5" || seen.Destination != "web:80" {
			t.Errorf("got %+v", seen)
		}
		if _, err := alice.Dial(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = l.Close() // one waits
		if n := backend.closed.Load(); n != 1 {
			t.Errorf("backend of the connection that nobody accepted was closed %d times", n)
		}
	})
}

func TestBindsAtThreeRoutersAndKeepsThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2", "r3", "r4")
		for i, r := range []string{"r1", "r2", "r3", "r4"} {
			w.net.SetLatency("bob", r, time.Duration(10*(i+1))*time.Millisecond)
		}
		bob := w.client("bob")
		pass(5 * time.Second)
		l := echo(t, bob, "echo", ListenOptions{})
		pass(time.Second)
		if got := l.Routers(); !slices.Equal(got, []ginnel.RouterID{"r1", "r2", "r3"}) {
			t.Errorf("got %v, want the three nearest", got)
		}
		w.kill("r2")
		pass(time.Second)
		if got := l.Routers(); !slices.Equal(got, []ginnel.RouterID{"r1", "r3", "r4"}) {
			t.Errorf("got %v, want r4 in place of r2", got)
		}
	})
}

func TestL46_RouterRestarts(t *testing.T) {
	for _, down := range []time.Duration{time.Second, time.Minute} {
		t.Run(down.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, "r1")
				l := echo(t, w.client("bob"), "echo", ListenOptions{})
				pass(10 * time.Second)
				w.kill("r1")
				pass(down)
				if len(l.Routers()) != 0 {
					t.Error("bound at a dead router")
				}
				w.start("r1")
				pass(10 * time.Second)
				w.mu.Lock()
				n := len(w.binds)
				w.mu.Unlock()
				if n != 1 || len(l.Routers()) != 1 {
					t.Errorf("got %d terminators, bound at %v", n, l.Routers())
				}
			})
		})
	}
}

func TestL47_QuickBindsAndUnbinds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1", "r2")
		bob := w.client("bob")
		pass(time.Second)
		for i := range 100 {
			l, err := bob.Listen("echo", ListenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				<-l.Bound()
			}
			_ = l.Close()
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.binds) != 0 || len(bob.hosts.held) != 0 {
			t.Errorf("%d terminators are left, %d known here", len(w.binds), len(bob.hosts.held))
		}
	})
}

// A router that shows a ticket again, or for a terminator that is not here, gets
// nothing.
func TestCircuitsAreTakenOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		echo(t, w.client("bob"), "echo", ListenOptions{})
		conn, err := w.client("alice").DialService(t.Context(), "echo", DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the client has begun
		w.mu.Lock()
		x := w.circuits[string(conn.Circuit())]
		host := w.binds[x.terminator].conn
		w.mu.Unlock()
		_, err = host.conn.Request(t.Context(), &wire.Message{Body: &wire.Message_HostDial{HostDial: &wire.HostDial{
			Circuit: string(conn.Circuit()), Generation: 2, Terminator: x.terminator, Service: "echo", Ticket: x.ticket,
		}}})
		if codeOf(t, err) != ginnel.StaleGeneration {
			t.Errorf("got %v", err)
		}
		_, err = host.conn.Request(t.Context(), &wire.Message{Body: &wire.Message_HostDial{HostDial: &wire.HostDial{
			Circuit: string(conn.Circuit()), Generation: 1, Terminator: x.terminator, Service: "echo", Ticket: x.ticket, Resume: true,
		}}})
		if codeOf(t, err) != ginnel.StaleGeneration {
			t.Errorf("old generation: got %v", err)
		}
	})
}

// count gives the number of circuits.
func (s *circuits) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// hostDial asks a host as the edge router of its first bind does.
func (w *world) hostDial(x *fakeCircuit, circuit string, generation uint32, early []byte) (*wire.Message, error) {
	w.mu.Lock()
	host := w.binds[x.terminator].conn
	w.labels += 2
	n := w.labels
	w.mu.Unlock()
	return host.conn.Request(w.t.Context(), &wire.Message{Body: &wire.Message_HostDial{HostDial: &wire.HostDial{
		Circuit: circuit, Generation: generation, Terminator: x.terminator, Service: "web", Ticket: x.ticket,
		Early: early, SendLabel: n, ArriveLabel: n + 1,
	}}})
}

// The attempts of one dial may come to the same host, over two edge routers: each
// is taken once, and a later one replaces one that did not come about.
func TestAttemptsOfOneDialReachTheSameHost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		answers := []error{ginnel.Errorf(ginnel.RouterErrConnRefused, "nobody there"), ginnel.Errorf(ginnel.RouterErrDialTimedOut, "black hole"), nil}
		var backends []*closer
		bob := w.client("bob")
		l, err := bob.Listen("web", ListenOptions{Connect: func(context.Context, Incoming) (io.Closer, error) {
			err := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			backends = append(backends, &closer{})
			return backends[len(backends)-1], err
		}})
		if err != nil {
			t.Fatal(err)
		}
		<-l.Bound()
		_, err = w.client("alice").Dial(t.Context(), "web")
		if codeOf(t, err) != ginnel.RouterErrConnRefused {
			t.Fatalf("got %v", err)
		}
		w.mu.Lock()
		var circuit string
		var x *fakeCircuit
		for circuit, x = range w.circuits {
		}
		early := w.dials[0].GetEarly()
		w.mu.Unlock()
		for i, c := range []struct {
			generation uint32
			want       ginnel.Code
		}{
			{1, ginnel.StaleGeneration},
			{2, ginnel.RouterErrDialTimedOut}, // the true cause of this attempt
			{4, ginnel.CodeOK},
			{3, ginnel.StaleGeneration}, // comes late
			{4, ginnel.StaleGeneration},
			{5, ginnel.CodeOK}, // replaces 4, whose client has not begun
		} {
			m, err := w.hostDial(x, circuit, c.generation, early)
			got := ginnel.CodeOK
			if err != nil {
				got = codeOf(t, err)
			}
			if got != c.want || err == nil && len(m.GetHostDialResult().GetEarly()) == 0 {
				t.Errorf("step %d, generation %d: got %v, want %v", i, c.generation, err, c.want)
			}
		}
		synctest.Wait()
		if n := bob.circuits.count(); n != 1 || len(l.places) != 1 {
			t.Errorf("%d circuits, %d places taken, want that of the last attempt", n, len(l.places))
		}
		if len(backends) != 4 || backends[2].closed.Load() != 1 || backends[3].closed.Load() != 0 {
			t.Errorf("backends %v", backends)
		}
		pass(startTime + time.Second) // nobody begins
		if n := bob.circuits.count(); n != 0 || len(l.places) != 0 || backends[3].closed.Load() != 1 {
			t.Errorf("%d circuits, %d places taken are left", n, len(l.places))
		}
	})
}

func TestListenRefusesNonsense(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		bob := w.client("bob")
		if _, err := bob.Listen("", ListenOptions{}); err == nil {
			t.Error("a service without a name")
		}
		if _, err := bob.Listen("web", ListenOptions{Precedence: "best"}); err == nil {
			t.Error("an unknown precedence")
		}
	})
}
