// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialloop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// TestDayOfFlapping: for a day, routers are refused, hang, come up and are lost
// after any time, connect by themselves, are changed, deleted and created again.
// Each dial starts at its nextDial exactly, none is doubled, and nothing is left
// behind.
func TestDayOfFlapping(t *testing.T) {
	const routers, day = 40, 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		f := newFlapping(t, 7)
		for i := range routers {
			f.set(dialer.Key(fmt.Sprintf("r%02d", i)), f.list())
		}
		cfg := dialer.Defaults()
		cfg.DialDelay, cfg.MaxRetryInterval, cfg.DialSpread = 0, time.Minute, 0.2
		f.loop = New(Options{
			Config: cfg, Random: rand.New(rand.NewPCG(7, 1)), Source: f, Dial: f.dial,
			Close: f.close, Keys: f.page, Observe: f.observe,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { f.loop.Run(ctx) })
		end := time.After(day)
	flapping:
		for {
			select {
			case <-end:
				break flapping
			case <-time.After(time.Duration(f.draw(60_000)) * time.Millisecond):
				f.happen(dialer.Key(fmt.Sprintf("r%02d", f.draw(routers))))
			}
		}
		synctest.Wait()
		var s dialer.Stats
		if err := f.loop.Ask(ctx, func(d *dialer.Dialer) { s = d.Stats() }); err != nil {
			t.Error(err)
		}
		cancel()
		done.Wait()
		f.check(s, routers)
		t.Logf("%+v", s)
	})
}

// flapping is a network of routers that do not stay.
type flapping struct {
	t    *testing.T
	loop *Loop

	mu    sync.Mutex
	rng   *rand.Rand
	store map[dialer.Key][]ginnel.Address
	conn  uint64
	calls uint64 // of dial

	// Of the loop's goroutine.
	due     map[dialer.Key]time.Time
	started map[dialer.Key]time.Time // guarded by mu: dials read it
	moves   int
}

func newFlapping(t *testing.T, seed uint64) *flapping {
	return &flapping{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)),
		store: make(map[dialer.Key][]ginnel.Address),
		due:   make(map[dialer.Key]time.Time), started: make(map[dialer.Key]time.Time),
	}
}

func (f *flapping) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.IntN(n)
}

// list draws a list of one to three addresses.
func (f *flapping) list() []ginnel.Address {
	all := []ginnel.Address{"tls:a:1", "tls:b:1", "tls:c:1"}
	from := f.draw(3)
	return all[from : from+1+f.draw(3-from)]
}

func (f *flapping) set(key dialer.Key, list []ginnel.Address) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store[key] = list
}

// Addresses implements dialer.Source.
func (f *flapping) Addresses(key dialer.Key) []ginnel.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.store[key]
}

// page gives the keys of the store, which are r00, r01 ...
func (f *flapping) page(after dialer.Key, limit int) []dialer.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	var keys []dialer.Key
	for i := 0; len(keys) < limit && i < len(f.store); i++ {
		if key := dialer.Key(fmt.Sprintf("r%02d", i)); key > after {
			keys = append(keys, key)
		}
	}
	return keys
}

func (f *flapping) number() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conn++
	return f.conn
}

// loseLater reports the loss of a connection after a random life, mostly a short one.
func (f *flapping) loseLater(key dialer.Key, conn uint64) {
	life := time.Duration(1+f.draw(8_000)) * time.Millisecond
	if f.draw(3) == 0 {
		life *= 100
	}
	time.AfterFunc(life, func() { f.loop.Send(dialer.ConnLost{Key: key, Conn: conn}) })
}

// dial is refused, hangs, or succeeds.
func (f *flapping) dial(ctx context.Context, key dialer.Key, _ ginnel.Address) (uint64, error) {
	f.mu.Lock()
	f.calls++
	if planned := f.started[key]; !planned.Equal(time.Now()) {
		f.t.Errorf("a dial of %s starts %v late", key, time.Since(planned))
	}
	f.mu.Unlock()
	outcome := f.draw(10)
	answer := time.After(time.Duration(f.draw(400)) * time.Millisecond)
	if outcome == 0 {
		answer = nil
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-answer:
	}
	if outcome < 4 {
		return 0, errors.New("refused")
	}
	conn := f.number()
	f.loseLater(key, conn)
	return conn, nil
}

func (*flapping) close(dialer.Key, uint64) {}

// observe holds each dial against the instant that was announced for it.
func (f *flapping) observe(at time.Time, action dialer.Action) {
	switch a := action.(type) {
	case dialer.Moved:
		f.moves++
		if a.To == dialer.NeedsDial {
			f.due[a.Key] = a.NextDial
		}
		if a.To == dialer.Dialing && !f.due[a.Key].Equal(at) {
			f.t.Errorf("%s is due at %v and submitted at %v", a.Key, f.due[a.Key], at)
		}
	case dialer.Dial:
		f.mu.Lock()
		f.started[a.Key] = at
		f.mu.Unlock()
	}
}

// happen does something to a router beside what the network does.
func (f *flapping) happen(key dialer.Key) {
	switch f.draw(6) {
	case 0:
		conn := f.number()
		f.loop.Send(dialer.ConnUp{Key: key, Conn: conn})
		f.loseLater(key, conn)
	case 1, 2:
		f.set(key, f.list())
		f.loop.Send(dialer.Updated{Key: key})
	case 3:
		list := f.Addresses(key)
		f.set(key, nil)
		f.loop.Send(dialer.Deleted{Key: key})
		f.set(key, list)
		f.loop.Send(dialer.Updated{Key: key})
	case 4:
		f.loop.Send(dialer.Updated{Key: key, Disabled: true})
		f.loop.Send(dialer.Updated{Key: key})
	default:
		f.loop.Send(dialer.Redial{Key: key})
	}
}

// check holds the counters against each other when the loop has ended.
func (f *flapping) check(s dialer.Stats, routers int) {
	if s.Dials != f.calls {
		f.t.Errorf("%d dials are counted, %d were made", s.Dials, f.calls)
	}
	if ends := s.Succeeded + s.Failed + s.HungUp + s.Duplicates; ends != s.Dials-uint64(s.Running) {
		f.t.Errorf("%d dials have ended of %d, while %d run", ends, s.Dials, s.Running)
	}
	if s.Dials < 10_000 || s.Tracked > routers || s.PoolFull > 0 {
		f.t.Errorf("got %+v", s)
	}
	if left := len(f.loop.take()); left > 0 {
		f.t.Errorf("%d events are left behind the end", left)
	}
}

// A crowd of events does not hold up what is due meanwhile.
func TestCrowdOfEventsHoldsUpNoDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{start: time.Now(), dial: map[ginnel.Address]func(context.Context) error{
			"tls:a:1": func(context.Context) error { return errors.New("refused") },
		}}
		opts := n.options(fast(), dialer.Addresses{"r1": {"tls:a:1"}})
		opts.Observe = func(_ time.Time, action dialer.Action) {
			if _, ok := action.(dialer.Ignored); ok {
				<-time.After(time.Millisecond) // an event is slow work
			}
		}
		run(t, opts, func(l *Loop) {
			l.Send(dialer.Updated{Key: "r1"}) // fails, and is due again after 1 s
			synctest.Wait()
			for range 5000 {
				l.Send(dialer.Redial{Key: "nobody"})
			}
			wait(6 * time.Second)
			if len(n.dials) < 2 {
				t.Fatalf("got %v", n.dials)
			}
			at, err := time.ParseDuration(strings.Fields(n.dials[1])[0])
			if err != nil || at < time.Second || at > time.Second+eventBatch*time.Millisecond {
				t.Errorf("the second dial is %s, want one soon after 1s", n.dials[1])
			}
		})
	})
}
