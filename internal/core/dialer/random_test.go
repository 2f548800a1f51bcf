// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

// TestRandomEvents feeds a machine with events in any order, late and foreign
// ones among them, and checks every invariant after each step. A second machine
// with the same seed must do the same.
func TestRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newChaos(t).run()
	})
}

// chaos is a world without manners. It keeps only what the actions promise.
type chaos struct {
	*rapid.T
	cfg   Config
	src   Addresses
	d     *Dialer
	twin  *Dialer
	now   time.Time
	live  map[Key]uint64 // dials that are neither answered nor hung up
	dials []Dial         // all of them
	conn  uint64         // numbers given
	scans uint64
}

func newChaos(t *rapid.T) *chaos {
	cfg := testConfig()
	cfg.MaxWorkers = rapid.IntRange(1, 3).Draw(t, "workers")
	cfg.QueueSize = rapid.IntRange(0, 2).Draw(t, "queue")
	cfg.DialSpread = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "spread")
	cfg.DialDelay = rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(t, "delay")
	cfg.MaxRetryInterval = rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute}).Draw(t, "max")
	cfg.FastFailureWindow = rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "window")
	src := Addresses{}
	return &chaos{
		T: t, cfg: cfg, src: src,
		d:    New(cfg, rand.New(rand.NewPCG(1, 2)), src),
		twin: New(cfg, rand.New(rand.NewPCG(1, 2)), src),
		now:  epoch, live: make(map[Key]uint64),
	}
}

func (c *chaos) run() {
	c.step(Tick{})
	for range rapid.IntRange(1, 150).Draw(c.T, "events") {
		c.step(c.event())
	}
}

func (c *chaos) step(ev Event) {
	late := c.isLate(ev)
	before := fmt.Sprint(c.states())
	actions := slices.Clone(c.d.Step(c.now, ev))
	if twin := c.twin.Step(c.now, ev); !reflect.DeepEqual(actions, slices.Clone(twin)) && len(actions)+len(twin) > 0 {
		c.Fatalf("%#v: the twin gives %v, not %v", ev, twin, actions)
	}
	for _, a := range actions {
		c.account(a)
	}
	if err := c.d.check(); err != nil {
		c.Fatalf("after %#v: %v", ev, err)
	}
	if c.d.running != len(c.live) {
		c.Fatalf("after %#v: %d dials are live by the actions, %d by the machine", ev, len(c.live), c.d.running)
	}
	if _, tick := ev.(Tick); tick && !c.d.Deadline().After(c.now) {
		c.Fatalf("after a tick the deadline %s has passed", c.d.Deadline())
	}
	if after := fmt.Sprint(c.states()); late && before != after {
		c.Fatalf("late %#v changed\n%s to\n%s", ev, before, after)
	}
	c.checkDelays()
}

// account follows the promises of one action.
func (c *chaos) account(a Action) {
	switch a := a.(type) {
	case Dial:
		if n := len(c.dials); n > 0 && c.dials[n-1].Attempt >= a.Attempt {
			c.Fatalf("attempt %d after %d", a.Attempt, c.dials[n-1].Attempt)
		}
		if c.live[a.Key] != 0 {
			c.Fatalf("%s is dialed twice at once", a.Key)
		}
		c.live[a.Key] = a.Attempt
		c.dials = append(c.dials, a)
		if len(c.live) > c.cfg.MaxWorkers {
			c.Fatalf("%d dials run with %d workers", len(c.live), c.cfg.MaxWorkers)
		}
	case Hangup:
		c.end(a.Key, a.Attempt)
	case Answered:
		if !errors.Is(a.Err, ErrTimeout) { // it came with a Hangup
			c.end(a.Key, a.Attempt)
		}
	case Scan:
		c.scans = a.Scan
	case Moved:
		switch {
		case a.From == a.To && a.To != NeedsDial && a.To != Connected:
			c.Fatalf("%+v is no move", a)
		case a.Why == "connected from elsewhere":
			delete(c.live, a.Key)
		case a.To == NeedsDial && a.NextDial.Before(c.now):
			c.Fatalf("%+v is due before %s", a, c.now)
		case a.To == NeedsDial && a.Why != "redial" && a.NextDial.Before(epoch.Add(c.cfg.DialDelay)):
			c.Fatalf("%+v is due during dialDelay", a)
		}
	case Close, Ignored:
	}
}

// end ends a dial that must be live.
func (c *chaos) end(key Key, attempt uint64) {
	if c.live[key] != attempt {
		c.Fatalf("dial %d of %s ends twice; live is %d", attempt, key, c.live[key])
	}
	delete(c.live, key)
}

// isLate reports whether ev must change nothing.
func (c *chaos) isLate(ev Event) bool {
	switch ev := ev.(type) {
	case DialDone:
		return c.live[ev.Key] != ev.Attempt
	case Duplicate:
		return c.live[ev.Key] != ev.Attempt
	case ConnLost:
		return c.d.conns[ev.Key] != ev.Conn
	case ConnUp:
		return c.d.conns[ev.Key] == ev.Conn
	case ScanPage:
		return ev.Scan != c.scans
	default:
		return false
	}
}

// states gives all that an operator can see.
func (c *chaos) states() []Status {
	var all []Status
	for _, key := range c.keys() {
		if st, ok := c.d.Status(key); ok {
			all = append(all, st)
		}
	}
	return all
}

func (c *chaos) checkDelays() {
	for st := range c.d.All() {
		if st.RetryDelay != 0 && (st.RetryDelay < c.cfg.MinRetryInterval || st.RetryDelay > c.cfg.MaxRetryInterval) {
			c.Fatalf("%s has a delay of %s", st.Key, st.RetryDelay)
		}
	}
}

func (*chaos) keys() []Key { return []Key{"r1", "r2", "r3", "r4", "r5", "r6"} }

// event draws one, and lets time pass.
func (c *chaos) event() Event {
	key := rapid.SampledFrom(c.keys()).Draw(c.T, "key")
	switch rapid.IntRange(0, 12).Draw(c.T, "event") {
	case 0, 1:
		c.pass()
		return Tick{}
	case 2:
		c.src[key] = c.addresses()
		return Updated{Key: key}
	case 3:
		delete(c.src, key)
		if rapid.Bool().Draw(c.T, "disabled") {
			return Updated{Key: key, Disabled: true}
		}
		return Deleted{Key: key}
	case 4:
		c.conn++
		return ConnUp{Key: key, Conn: c.oldOrNew("conn", c.conn)}
	case 5:
		if conn := c.d.conns[key]; conn != 0 && rapid.Bool().Draw(c.T, "current") {
			return ConnLost{Key: key, Conn: conn}
		}
		return ConnLost{Key: key, Conn: c.oldOrNew("lost", c.conn)}
	case 6, 7, 8:
		return c.answer()
	case 9:
		c.src[key] = c.addresses() // and nobody tells
		return Redial{Key: key}
	case 10:
		return ScanPage{Scan: rapid.Uint64Range(0, c.scans).Draw(c.T, "scan"), Keys: c.keys()}
	case 11:
		return ClockJump{}
	default:
		// Fewer workers than run would drain; let there be more.
		c.cfg.MaxWorkers = min(c.cfg.MaxWorkers+1, 6)
		c.cfg.ScanSpread = rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(c.T, "scanSpread")
		return Reconfigured{Config: c.cfg}
	}
}

// oldOrNew draws the latest number, mostly, or an earlier one.
func (c *chaos) oldOrNew(label string, latest uint64) uint64 {
	if latest > 1 && rapid.IntRange(0, 3).Draw(c.T, label) == 0 {
		return rapid.Uint64Range(1, latest).Draw(c.T, label+" old")
	}
	return max(latest, 1)
}

// pass moves the clock to the deadline or by any time.
func (c *chaos) pass() {
	if at := c.d.Deadline(); rapid.Bool().Draw(c.T, "exact") && at.After(c.now) {
		c.now = at
		return
	}
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 20000).Draw(c.T, "ms")) * time.Millisecond)
}

func (c *chaos) addresses() []ginnel.Address {
	return rapid.SliceOfN(rapid.SampledFrom([]ginnel.Address{"a", "b", "c", "d"}), 0, 4).Draw(c.T, "addresses")
}

// answer ends one of all the dials there ever were, a late one at times.
func (c *chaos) answer() Event {
	if len(c.dials) == 0 {
		return Tick{}
	}
	dial := c.dials[len(c.dials)-1-rapid.IntRange(0, min(len(c.dials)-1, 5)).Draw(c.T, "dial")]
	c.conn++
	switch rapid.IntRange(0, 4).Draw(c.T, "answer") {
	case 0, 1:
		return DialDone{Key: dial.Key, Attempt: dial.Attempt, Conn: c.conn}
	case 2:
		return Duplicate{Key: dial.Key, Attempt: dial.Attempt, Conn: c.conn}
	default:
		return DialDone{Key: dial.Key, Attempt: dial.Attempt, Err: errRefused}
	}
}
