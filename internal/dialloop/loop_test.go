// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is what the loop of a test dials: outcomes by address, dials noted.
type network struct {
	start  time.Time
	mu     sync.Mutex
	dials  []string
	conns  uint64
	closed []uint64
	dial   map[ginnel.Address]func(ctx context.Context) error
}

func (n *network) options(cfg dialer.Config, src dialer.Source) Options {
	return Options{
		Config: cfg, Random: dialer.FixedJitter(0), Source: src,
		Dial: func(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
			n.mu.Lock()
			n.dials = append(n.dials, fmt.Sprintf("%v %s %s", time.Since(n.start), key, address))
			n.mu.Unlock()
			if dial := n.dial[address]; dial != nil {
				if err := dial(ctx); err != nil {
					return 0, err
				}
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.conns++
			return n.conns, nil
		},
		Close: func(_ dialer.Key, conn uint64) { n.closed = append(n.closed, conn) },
	}
}

func fast() dialer.Config {
	cfg := dialer.Defaults()
	cfg.DialDelay, cfg.MaxWorkers = 0, 1
	return cfg
}

// run runs a loop inside a bubble of synctest until test returns.
func run(t *testing.T, opts Options, test func(l *Loop)) {
	t.Helper()
	l := New(opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	synctest.Wait()
	test(l)
	cancel()
	<-done
}

func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestDialsAtTheInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:a:1": func(context.Context) error { return errors.New("refused") },
		}}
		src := dialer.Addresses{"r1": {"tls:a:1", "tls:b:1"}}
		run(t, n.options(fast(), src), func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(10 * time.Second)
			want := []string{"0s r1 tls:a:1", "1s r1 tls:b:1"}
			if !slices.Equal(n.dials, want) {
				t.Errorf("got %v, want %v", n.dials, want)
			}
		})
	})
}

// A scan of many routers is fed in pages, each router once.
func TestScanPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		src := dialer.Addresses{}
		var keys []dialer.Key
		for i := range 1000 {
			key := dialer.Key(fmt.Sprintf("r%04d", i))
			keys = append(keys, key)
			src[key] = []ginnel.Address{"tls:a:1"}
		}
		cfg := fast()
		cfg.ScanSpread = time.Millisecond
		opts := n.options(cfg, src)
		opts.Keys = func(after dialer.Key, limit int) []dialer.Key {
			i, found := slices.BinarySearch(keys, after)
			if found {
				i++
			}
			return keys[i:min(i+limit, len(keys))]
		}
		run(t, opts, func(*Loop) {
			wait(2 * time.Second)
			if len(n.dials) != 1000 || n.dials[999] != "999ms r0999 tls:a:1" {
				t.Errorf("got %d dials, the last %s", len(n.dials), n.dials[len(n.dials)-1])
			}
		})
	})
}

func TestL11_DialPanicsOrNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:panics:1": func(context.Context) error { panic("boom") },
			"tls:hangs:1": func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			},
		}}
		src := dialer.Addresses{"r1": {"tls:panics:1", "tls:hangs:1", "tls:good:1"}}
		run(t, n.options(fast(), src), func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(30 * time.Second)
			// 1 s after the panic, 1.5 s after the 5 s that a dial may take.
			want := []string{"0s r1 tls:panics:1", "1s r1 tls:hangs:1", "7.5s r1 tls:good:1"}
			if !slices.Equal(n.dials, want) {
				t.Errorf("got %v, want %v", n.dials, want)
			}
		})
	})
}

// A connection that came up after its dial was hung up is closed.
func TestLateConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:slow:1": func(ctx context.Context) error {
				<-ctx.Done()
				return nil // it does not look at ctx in time
			},
		}}
		run(t, n.options(fast(), dialer.Addresses{"r1": {"tls:slow:1"}}), func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(time.Second)
			l.Send(dialer.Deleted{Key: "r1"})
			wait(time.Second)
			if !slices.Equal(n.closed, []uint64{1}) {
				t.Errorf("got %v closed, want connection 1", n.closed)
			}
		})
	})
}

func TestDuplicateIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:a:1": func(context.Context) error { return &DuplicateError{Conn: 77} },
		}}
		run(t, n.options(fast(), dialer.Addresses{"r1": {"tls:a:1"}}), func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(time.Second)
			var st dialer.Status
			if err := l.Ask(t.Context(), func(d *dialer.Dialer) { st, _ = d.Status("r1") }); err != nil {
				t.Fatal(err)
			}
			if st.State != dialer.Connected || st.Conn != 77 || st.RetryDelay != 0 {
				t.Errorf("got %+v", st)
			}
		})
	})
}

func TestL12_EventsDuringDialDelayWaitForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		src := dialer.Addresses{}
		for i := range 1000 {
			src[dialer.Key(fmt.Sprint(i))] = []ginnel.Address{"tls:a:1"}
		}
		run(t, n.options(dialer.Defaults(), src), func(l *Loop) {
			for key := range src {
				l.Send(dialer.Updated{Key: key})
			}
			tracked := 0
			if err := l.Ask(t.Context(), func(d *dialer.Dialer) { tracked = d.Stats().Tracked }); err != nil {
				t.Fatal(err)
			}
			if tracked != 1000 || time.Since(n.start) != 0 {
				t.Errorf("got %d tracked after %v", tracked, time.Since(n.start))
			}
		})
	})
}

func TestAskAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		var l *Loop
		run(t, n.options(fast(), dialer.Addresses{}), func(loop *Loop) { l = loop })
		if err := l.Ask(t.Context(), func(*dialer.Dialer) {}); !errors.Is(err, ErrStopped) {
			t.Errorf("got %v, want ErrStopped", err)
		}
	})
}

// A dial that does not look at its context holds up neither the others nor the
// loop, only the end of Run; what it brings then is closed.
func TestRunWaitsForDialsAndClosesWhatTheyBring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:deaf:1": func(context.Context) error {
				time.Sleep(time.Minute)
				return nil
			},
		}}
		run(t, n.options(fast(), dialer.Addresses{"r1": {"tls:deaf:1"}, "r2": {"tls:good:1"}}), func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(time.Second)
			l.Send(dialer.Updated{Key: "r2"}) // the only worker is busy until the dial counts as failed
			wait(4*time.Second + 500*time.Millisecond)
			l.Send(dialer.Deleted{Key: "r1"})
			if len(n.dials) < 2 || n.dials[1] != "5s r2 tls:good:1" {
				t.Errorf("got %v", n.dials)
			}
		})
		if d := time.Since(n.start); d != time.Minute {
			t.Errorf("Run ended after %v", d)
		}
		if !slices.Equal(n.closed, []uint64{2}) {
			t.Errorf("got %v closed, want connection 2", n.closed)
		}
	})
}

// Events that come behind the end are not kept.
func TestSendAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		var l *Loop
		run(t, n.options(fast(), dialer.Addresses{}), func(loop *Loop) { l = loop })
		for range 100 {
			l.Send(dialer.Updated{Key: "r1"})
		}
		if got := len(l.take()); got != 0 {
			t.Errorf("%d events are kept", got)
		}
	})
}

// Events are taken in the order in which they were sent, also behind thousands,
// and a question sees all that were sent before it.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now()}
		run(t, n.options(fast(), dialer.Addresses{}), func(l *Loop) {
			for i := range uint64(20_000) {
				l.Send(dialer.ConnUp{Key: "r1", Conn: i + 1})
				l.Send(dialer.ConnLost{Key: "r1", Conn: i + 1})
			}
			l.Send(dialer.ConnUp{Key: "r1", Conn: 50_000})
			var up int
			if err := l.Ask(t.Context(), func(d *dialer.Dialer) { up = d.Stats().Conns }); err != nil || up != 1 {
				t.Errorf("got %d connections, %v, want 1", up, err)
			}
		})
	})
}

// A hangup of a dial that has answered, or that never was, does nothing.
func TestHangUpOfNothing(t *testing.T) {
	l := New(Options{Config: fast()})
	l.hangUp(99)
	l.forget(dialer.DialDone{Key: "r1", Attempt: 99})
}

// A loop with nothing to do does nothing, whatever is overdue: it is woken by
// the clock's watch and by its own deadlines only.
func TestIdleLoopDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:a:1": func(context.Context) error { return errors.New("refused") },
		}}
		asked := 0
		opts := n.options(fast(), counted{dialer.Addresses{"r1": {"tls:a:1"}}, &asked})
		opts.Observe = func(time.Time, dialer.Action) { asked++ }
		run(t, opts, func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"})
			wait(time.Hour)
			if asked > 1000 {
				t.Errorf("%d steps in an hour of failures", asked)
			}
		})
	})
}

type counted struct {
	dialer.Source
	n *int
}

func (c counted) Addresses(key dialer.Key) []ginnel.Address {
	*c.n++
	return c.Source.Addresses(key)
}

// The computer slept: the waiting router is dialed soon, not when its long delay
// is over.
func TestClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:a:1": func(context.Context) error { return errors.New("refused") },
		}}
		var slept atomic.Int64
		l := New(n.options(fast(), dialer.Addresses{"r1": {"tls:a:1"}}))
		l.wall = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx)
		}()
		l.Send(dialer.Updated{Key: "r1"})
		wait(10 * time.Minute)
		var st dialer.Status
		if err := l.Ask(ctx, func(d *dialer.Dialer) { st, _ = d.Status("r1") }); err != nil {
			t.Fatal(err)
		}
		before := len(n.dials)
		if time.Until(st.NextDial) < 30*time.Second { // else the test shows nothing
			wait(time.Until(st.NextDial) + time.Second)
			before = len(n.dials)
		}
		slept.Store(int64(time.Hour))
		wait(dialer.ClockPoll + 5*time.Second)
		if len(n.dials) == before {
			t.Errorf("not dialed after the clock jumped; next %v", time.Until(st.NextDial))
		}
		cancel()
		<-done
	})
}

func BenchmarkEvents(b *testing.B) {
	l := New(Options{
		Config: fast(), Random: dialer.FixedJitter(0), Source: dialer.Addresses{},
		Dial:  func(context.Context, dialer.Key, ginnel.Address) (uint64, error) { return 0, errors.New("none") },
		Close: func(dialer.Key, uint64) {},
	})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(ctx)
	}()
	b.ReportAllocs()
	for b.Loop() {
		for i := range uint64(5_000) { // 10,000 events
			l.Send(dialer.ConnUp{Key: "r1", Conn: i + 1})
			l.Send(dialer.ConnLost{Key: "r1", Conn: i + 1})
		}
		if err := l.Ask(ctx, func(*dialer.Dialer) {}); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	<-done
}
