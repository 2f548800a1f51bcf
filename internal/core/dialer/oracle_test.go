// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
)

// oddLists are lists of addresses with repeats and reorderings.
var oddLists = [][]ginnel.Address{
	{"a"}, {"b"}, {"a", "b"}, {"b", "a"}, {"a", "b", "c"}, {"c", "b", "a", "d"}, {"a", "a", "b"}, {"d", "c"},
}

// someOps draws up to a few thousand events; rapid keeps most lists short.
var someOps = rapid.Custom(func(t *rapid.T) []op {
	one := rapid.Custom(func(t *rapid.T) op {
		return op{
			letter(rapid.IntRange(0, letters-1).Draw(t, "letter")),
			rapid.IntRange(0, len(eight)-1).Draw(t, "router"),
			rapid.IntRange(0, 9000).Draw(t, "arg"),
		}
	})
	least := rapid.SampledFrom([]int{1, 100, 4000}).Draw(t, "least")
	return rapid.SliceOfN(one, least, 4000).Draw(t, "ops")
})

var eight = []Key{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"}

// TestRandomAgainstModel feeds machine and model with thousands of events in any
// order, late and foreign ones among them. After each they must agree, and every
// invariant must hold.
func TestRandomAgainstModel(t *testing.T) {
	events := 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := randomConfig(t)
		jitter := rapid.SampledFrom([]float64{0, -0.5, 0.5, 0.25}).Draw(t, "jitter")
		ops := someOps.Draw(t, "ops")
		play := func(ops []op) error { return playAll(cfg, jitter, ops) }
		if err := play(ops); err != nil {
			ops = shortened(ops, play)
			t.Fatalf("%v (shortened from %v): %+v", play(ops), err, ops)
		}
		events += len(ops)
	})
	t.Logf("%d events", events)
}

// playAll plays ops from the start and reports the first thing that is wrong.
func playAll(cfg Config, jitter float64, ops []op) error {
	p := newPair(cfg, jitter, eight, oddLists)
	if err := p.play(op{letter: due}); err != nil {
		return err
	}
	for i, o := range ops {
		if err := p.play(o); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, o, err)
		}
	}
	return nil
}

// shortened leaves out of ops, which fail, whatever they fail without.
func shortened(ops []op, play func([]op) error) []op {
	for size := len(ops) / 2; size > 0; {
		before := len(ops)
		for i := 0; i+size <= len(ops); {
			if less := slices.Delete(slices.Clone(ops), i, i+size); play(less) != nil {
				ops = less
			} else {
				i += size
			}
		}
		if len(ops) == before {
			size /= 2
		}
	}
	return ops
}

// TestShortened: a failure comes down to the events that it takes.
func TestShortened(t *testing.T) {
	var ops []op
	for i := range 3000 {
		ops = append(ops, op{letter: redial, arg: i})
	}
	fails := func(ops []op) error {
		if slices.Contains(ops, op{letter: redial, arg: 17}) && slices.Contains(ops, op{letter: redial, arg: 2900}) {
			return errRefused
		}
		return nil
	}
	if got := shortened(ops, fails); len(got) != 2 || got[0].arg != 17 || got[1].arg != 2900 {
		t.Errorf("got %v", got)
	}
}

func randomConfig(t *rapid.T) Config {
	cfg := testConfig()
	cfg.MaxWorkers = rapid.IntRange(1, 4).Draw(t, "workers")
	cfg.QueueSize = rapid.IntRange(0, 3).Draw(t, "queue")
	cfg.DialSpread = rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, "spread")
	cfg.DialDelay = rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(t, "delay")
	cfg.MaxRetryInterval = rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, time.Minute}).Draw(t, "max")
	cfg.FastFailureWindow = rapid.SampledFrom([]time.Duration{0, 2 * time.Second, 5 * time.Second}).Draw(t, "window")
	cfg.RetryBackoffFactor = rapid.SampledFrom([]float64{1, 1.5, 3}).Draw(t, "factor")
	return cfg
}

// alphabets are what an exhaustive run lets happen, each for either router where
// it makes a difference. The list is "a, b", the time that passes 1.5 s.
var alphabets = []struct {
	name    string
	events  int
	letters []letter
	common  []op // to nobody in particular
}{
	{
		"five events", 5,
		[]letter{list, disable, remove, connect, lose, fail, succeed},
		[]op{{letter: due}},
	},
	{
		"four events", 4,
		[]letter{list, withdraw, disable, remove, connect, echo, lose, loseOld, fail, succeed, duplicate, redial},
		[]op{{letter: due}, {letter: pass, arg: 1500}, {letter: page}, {letter: jump}},
	},
}

// TestEveryInterleaving plays every sequence of events of an alphabet on two
// routers with two addresses. A sequence whose first event about a router is of
// the second is the mirror image of another, and left out.
func TestEveryInterleaving(t *testing.T) {
	for _, a := range alphabets {
		for queue := range 2 {
			t.Run(fmt.Sprintf("%s, queue of %d", a.name, queue), func(t *testing.T) {
				t.Parallel()
				cfg := testConfig()
				cfg.MaxWorkers, cfg.QueueSize = 1, queue
				e := newExhaustive(cfg, a.events)
				for r := range 2 {
					for _, l := range a.letters {
						e.alphabet = append(e.alphabet, op{letter: l, router: r})
					}
				}
				e.alphabet = append(e.alphabet, a.common...)
				e.common = len(a.common)
				if err := e.run(0, false); err != nil {
					t.Fatalf("%v: %v", e.path, err)
				}
				t.Logf("%d letters, %d sequences of up to %d events", len(e.alphabet), e.sequences, a.events)
			})
		}
	}
}

// exhaustive goes through all sequences depth first, with a pair for each depth.
type exhaustive struct {
	alphabet  []op
	common    int
	pairs     []*pair
	entries   [][]entry
	path      []op
	sequences int
}

func newExhaustive(cfg Config, events int) *exhaustive {
	e := &exhaustive{path: make([]op, events)}
	keys, lists := []Key{"r1", "r2"}, [][]ginnel.Address{{"a", "b"}}
	for range events + 1 {
		p := newPair(cfg, 0, keys, lists)
		if err := p.play(op{letter: due}); err != nil {
			panic(err)
		}
		e.pairs = append(e.pairs, p)
		e.entries = append(e.entries, make([]entry, len(keys)))
	}
	return e
}

// run plays all that can follow what stands at a depth; met: a router was part
// of it already.
func (e *exhaustive) run(depth int, met bool) error {
	if depth == len(e.path) {
		return nil
	}
	for i, o := range e.alphabet {
		about := i < len(e.alphabet)-e.common
		if about && o.router == 1 && !met {
			continue
		}
		e.path[depth] = o
		e.copy(depth+1, depth)
		e.sequences++
		if err := e.pairs[depth+1].play(o); err != nil {
			return errors.Join(err, fmt.Errorf("as event %d", depth+1))
		}
		if err := e.run(depth+1, met || about); err != nil {
			return err
		}
	}
	return nil
}

// copy makes the pair at depth to the same as the one at depth from.
func (e *exhaustive) copy(to, from int) {
	p, o := e.pairs[to], e.pairs[from]
	d, m, src := p.d, p.m, p.src
	copyMap(src, o.src)
	routers, conns, dials := m.routers[:0], m.conns[:0], p.dials[:0]
	*m = *o.m
	m.src, m.effects = src, nil
	m.routers, m.conns = append(routers, o.m.routers...), append(conns, o.m.conns...)
	copyDialer(d, o.d, src, e.entries[to])
	*p = *o
	p.d, p.m, p.src, p.dials = d, m, src, append(dials, o.dials...)
}

// copyDialer makes d the same as o, over another Source, in the memory given.
func copyDialer(d, o *Dialer, src Source, entries []entry) {
	mine, conns, timers, pool := d.entries, d.conns, d.timers, d.pool
	*d = *o
	d.src, d.out = src, nil
	copyMap(conns, o.conns)
	clear(mine)
	for i, key := range slices.Sorted(maps.Keys(o.entries)) {
		entries[i] = *o.entries[key]
		mine[key] = &entries[i]
	}
	d.entries, d.conns = mine, conns
	d.timers, d.pool = copyQueue(timers, &o.timers, mine), copyQueue(pool, &o.pool, mine)
}

func copyQueue(q queue, o *queue, entries map[Key]*entry) queue {
	for len(q.blocks) < len(o.blocks) {
		q.blocks = append(q.blocks, new(block))
	}
	q.len = o.len
	for i := range o.len {
		*q.at(i) = *o.at(i)
		q.at(i).e = entries[o.at(i).e.key]
	}
	return q
}

func copyMap[V any](to, from map[Key]V) {
	clear(to)
	maps.Copy(to, from)
}
