// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// networks are what every measurement must work over.
func networks(t *testing.T) map[string]Dial {
	return map[string]Dial{
		"tcp":        to(run(t, Server{}.Serve)),
		"one hop":    chain(t, 1),
		"two hops":   chain(t, 2),
		"plain hops": chain(t, 0),
	}
}

func TestPush(t *testing.T) {
	loads := map[string]Load{
		"up":   {Up: 1},
		"down": {Down: 1},
		"both": {Up: 2, Down: 3},
	}
	for over, dial := range networks(t) {
		for name, load := range loads {
			t.Run(over+"/"+name, func(t *testing.T) {
				load.Duration = brief
				got, err := Push(t.Context(), dial, load)
				if err != nil {
					t.Fatal(err)
				}
				checkFlow(t, "up", got.Up, load.Up)
				checkFlow(t, "down", got.Down, load.Down)
			})
		}
	}
}

func checkFlow(t *testing.T, name string, f *Flow, streams int) {
	t.Helper()
	if streams == 0 {
		if f != nil {
			t.Errorf("%s: got %+v, want nil", name, *f)
		}
		return
	}
	if f == nil {
		t.Fatalf("%s: got nil", name)
	}
	if f.Streams != streams || f.Bytes <= 0 || f.Seconds < brief.Seconds() || f.Gbits <= 0 || f.Least < 0 || f.Least > 1 {
		t.Errorf("%s: got %+v", name, *f)
	}
}

func TestPushTellsWhatHasArrived(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	ctx, cancel := context.WithCancel(t.Context())
	var seen Rate
	_, err := Push(ctx, dial, Load{Up: 1, Down: 1, Duration: time.Minute, Live: func(r Rate) {
		seen.Up += r.Up
		seen.Down += r.Down
		if seen.Up > 0 && seen.Down > 0 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestPushRefuses(t *testing.T) {
	for name, load := range map[string]Load{
		"nothing":  {Duration: brief},
		"negative": {Up: 2, Down: -1, Duration: brief},
		"too many": {Up: MaxStreams, Down: 1, Duration: brief},
		"no time":  {Up: 1},
		"too long": {Up: 1, Duration: MaxDuration + 1},
	} {
		if _, err := Push(t.Context(), nil, load); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestPushFails has a stream break: no figure comes out of the others.
func TestPushFails(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	n := 0
	breaks := func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if n++; err == nil && n == 2 {
			conn = &fragile{Conn: conn, left: 10 * chunk}
		}
		return conn, err
	}
	_, err := Push(t.Context(), breaks, Load{Up: 3, Duration: time.Minute})
	if !errors.Is(err, errFragile) && !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

var errFragile = errors.New("broken for the test")

// fragile breaks after so many bytes.
type fragile struct {
	net.Conn
	left int
}

func (f *fragile) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFragile
	}
	return f.Conn.Write(b)
}

func TestEcho(t *testing.T) {
	for over, dial := range networks(t) {
		t.Run(over, func(t *testing.T) {
			for _, size := range []int{1, 1000, MaxEcho} {
				got, err := Echo(t.Context(), dial, size, Bound{Count: 5})
				if err != nil {
					t.Fatal(err)
				}
				if got.Count != 5 || got.P50 <= 0 || got.P50 > got.P90 || got.P90 > got.P99 || got.P99 > got.Max {
					t.Errorf("%d bytes: got %+v", size, got)
				}
			}
		})
	}
}

func TestEchoRefuses(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	for _, size := range []int{0, -1, MaxEcho + 1} {
		if _, err := Echo(t.Context(), dial, size, Bound{Count: 1}); err == nil {
			t.Errorf("%d bytes: no error", size)
		}
	}
	for _, bound := range []Bound{{}, {Count: -1}, {Duration: -1}} {
		if _, err := Echo(t.Context(), dial, 1, bound); err == nil {
			t.Errorf("%+v: no error", bound)
		}
	}
}

func TestConnect(t *testing.T) {
	for over, dial := range networks(t) {
		t.Run(over, func(t *testing.T) {
			got, err := Connect(t.Context(), dial, 4, Bound{Count: 10})
			if err != nil {
				t.Fatal(err)
			}
			if got.Latency.Count != 10 || got.Failed != 0 || got.InFlight != 4 || got.PerSecond <= 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestConnectIsBoundByTime(t *testing.T) {
	got, err := Connect(t.Context(), to(run(t, Server{}.Serve)), 2, Bound{Duration: brief})
	if err != nil || got.Latency.Count == 0 || got.Seconds < brief.Seconds() {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestConnectCountsFailures(t *testing.T) {
	dial := to(run(t, Server{}.Serve))
	n := 0
	got, err := Connect(t.Context(), func(ctx context.Context) (net.Conn, error) {
		if n++; n%3 == 0 {
			return nil, errFragile
		}
		return dial(ctx)
	}, 1, Bound{Count: 9})
	if err != nil || got.Failed != 3 || got.Error != errFragile.Error() || got.Latency.Count != 6 {
		t.Errorf("got %+v, %v", got, err)
	}
	none := func(context.Context) (net.Conn, error) { return nil, errFragile }
	if got, err := Connect(t.Context(), none, 2, Bound{Count: 3}); !errors.Is(err, errFragile) || got.Failed != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestConnectRefuses(t *testing.T) {
	for _, inFlight := range []int{0, -1, MaxInFlight + 1} {
		if _, err := Connect(t.Context(), nil, inFlight, Bound{Count: 1}); err == nil {
			t.Errorf("%d in flight: no error", inFlight)
		}
	}
}

// TestServerThatIsNoneOfOurs hears an answer of another kind.
func TestServerThatIsNoneOfOurs(t *testing.T) {
	address := run(t, func(ctx context.Context, l net.Listener) error {
		return accept(ctx, l, maxServed, func(_ context.Context, conn net.Conn) {
			_, _ = io.WriteString(conn, "220 ready")
			_ = conn.Close()
		})
	})
	_, err := Echo(t.Context(), to(address), 1, Bound{Count: 1})
	if err == nil || !strings.Contains(err.Error(), "none of ours") {
		t.Errorf("got %v", err)
	}
}

func TestServerEndsWithWhoAsksForNothingKnown(t *testing.T) {
	conn, err := to(run(t, Server{}.Serve))(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{'?'}); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// TestServeEndsConnections ends a server while a client does nothing.
func TestServeEndsConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Server{}.Serve(ctx, listener) }()
	conn, err := open(t.Context(), to(listener.Addr().String()), sink)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// TestRelayKeepsBytesAndHalfClose sends a few KB through two hops and back.
func TestRelayKeepsBytesAndHalfClose(t *testing.T) {
	conn, err := open(t.Context(), chain(t, 2), echo)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := strings.Repeat("0123456789", 700)
	if _, err := io.WriteString(conn, sent); err != nil {
		t.Fatal(err)
	}
	if err := closeWrite(conn); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != sent {
		t.Errorf("got %d bytes, %v; want the %d that were sent", len(got), err, len(sent))
	}
}

func TestRelayWithoutNext(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	r := Relay{Next: gone.Addr().String()}
	if _, err := open(t.Context(), to(run(t, r.Serve)), touch); err == nil {
		t.Error("no error")
	}
}
