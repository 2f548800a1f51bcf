// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialloop

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	dials  []string
	conns  uint64
	closed []uint64
	dial   map[ginnel.Address]func(ctx context.Context) error
}

func (n *network) options(cfg dialer.Config, src dialer.Source) Options {
	return Options{
		Config: cfg, Random: dialer.FixedJitter(0), Source: src,
		Dial: func(ctx context.Context, key dialer.Key, address ginnel.Address) (uint64, error) {
			n.dials = append(n.dials, fmt.Sprintf("%v %s %s", time.Since(n.start), key, address))
			if dial := n.dial[address]; dial != nil {
				if err := dial(ctx); err != nil {
					return 0, err
				}
			}
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
