// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// letter is one kind of thing that can happen to a pair.
type letter uint8

const (
	list      letter = iota // the router is written with a list of addresses
	withdraw                // it is written without any
	disable                 // it is disabled
	remove                  // it is deleted
	rewrite                 // its list changes in the store, and nobody tells
	connect                 // it connects from outside
	echo                    // its current connection is reported once more
	lose                    // its current connection is lost
	loseOld                 // another connection is lost
	fail                    // its latest dial fails
	succeed                 // its latest dial succeeds
	duplicate               // its latest dial finds it connected
	failOld                 // an earlier dial of anybody fails
	succOld                 // an earlier dial of anybody succeeds
	redial
	due  // time goes to the deadline; tick
	pass // time goes on by some milliseconds; tick
	page // a page of a scan comes
	jump
	configure
	letters int = iota
)

var letterNames = [...]string{
	"list", "withdraw", "disable", "remove", "rewrite", "connect", "echo", "lose", "loseOld", "fail", "succeed",
	"duplicate", "failOld", "succOld", "redial", "due", "pass", "page", "jump", "configure",
}

// op is one thing that happens: to router 0, 1 ..., with a number that means
// something else for each letter.
type op struct {
	letter      letter
	router, arg int
}

// String gives the op as it is written in a failure.
func (o op) String() string {
	return fmt.Sprintf("%s(r%d, %d)", letterNames[o.letter], o.router+1, o.arg)
}

// pair is a machine beside a model, in one world.
type pair struct {
	d     *Dialer
	m     *model
	keys  []Key
	lists [][]ginnel.Address // what a list can be
	src   Addresses
	now   time.Duration
	conn  uint64 // numbers given
	dials []Dial // all of them
	cfg   Config
}

func newPair(cfg Config, jitter float64, keys []Key, lists [][]ginnel.Address) *pair {
	src := Addresses{}
	return &pair{
		d: New(cfg, FixedJitter(jitter), src), m: &model{cfg: cfg, jitter: jitter, src: src},
		keys: keys, lists: lists, src: src, cfg: cfg,
	}
}

// play makes o happen to both and reports the first thing that is wrong.
func (p *pair) play(o op) error {
	ev := p.event(o)
	if ev == nil {
		return nil
	}
	actions := p.d.Step(epoch.Add(p.now), ev)
	p.m.step(p.now, ev)
	for _, a := range actions {
		if dial, ok := a.(Dial); ok {
			p.dials = append(p.dials, dial)
		}
	}
	if err := p.m.compare(p.d, actions, p.keys); err != nil {
		return err
	}
	if _, tick := ev.(Tick); tick && p.d.Deadline().Sub(epoch) <= p.now {
		return fmt.Errorf("the deadline %s has passed after a tick at %s", p.d.Deadline(), p.now)
	}
	return p.d.check()
}

// event turns o into an event; nil for one that nobody tells of.
func (p *pair) event(o op) Event {
	key := p.keys[o.router]
	switch o.letter {
	case list, rewrite:
		p.src[key] = p.lists[o.arg%len(p.lists)]
		if o.letter == rewrite {
			return nil
		}
		return Updated{Key: key}
	case withdraw:
		delete(p.src, key)
		return Updated{Key: key}
	case disable:
		delete(p.src, key)
		return Updated{Key: key, Disabled: true}
	case remove:
		delete(p.src, key)
		return Deleted{Key: key}
	case connect, echo, lose, loseOld:
		return p.connection(o, key)
	case fail, succeed, duplicate, failOld, succOld:
		return p.answer(o, key)
	case redial:
		return Redial{Key: key}
	case due:
		p.now = max(p.now, p.m.deadline())
		return Tick{}
	case pass:
		p.now += time.Duration(o.arg) * time.Millisecond
		return Tick{}
	case page:
		return ScanPage{Scan: p.m.scan - min(p.m.scan, uint64(o.arg%4/3)), Keys: p.keys}
	case jump:
		return ClockJump{}
	default:
		return p.configure(o.arg)
	}
}

func (p *pair) connection(o op, key Key) Event {
	switch o.letter {
	case connect:
		p.conn++
		return ConnUp{Key: key, Conn: p.conn}
	case echo:
		return ConnUp{Key: key, Conn: max(p.m.conn(key), 1)}
	case lose:
		return ConnLost{Key: key, Conn: p.m.conn(key)}
	default:
		return ConnLost{Key: key, Conn: p.conn - min(p.conn, uint64(o.arg%3)) + 1}
	}
}

// answer answers the router's latest dial, or an earlier one of anybody.
func (p *pair) answer(o op, key Key) Event {
	dial := Dial{Key: key, Attempt: 77}
	if o.letter == failOld || o.letter == succOld {
		if n := len(p.dials); n > 0 {
			dial = p.dials[n-1-o.arg%n]
		}
	} else if i := p.latest(key); i >= 0 {
		dial = p.dials[i]
	}
	switch o.letter {
	case fail, failOld:
		return DialDone{Key: dial.Key, Attempt: dial.Attempt, Err: errRefused}
	case duplicate:
		p.conn++
		return Duplicate{Key: dial.Key, Attempt: dial.Attempt, Conn: p.conn}
	default:
		p.conn++
		return DialDone{Key: dial.Key, Attempt: dial.Attempt, Conn: p.conn}
	}
}

// latest gives the place of the router's latest dial, or -1.
func (p *pair) latest(key Key) int {
	for i, d := range slices.Backward(p.dials) {
		if d.Key == key {
			return i
		}
	}
	return -1
}

// configure gives one of a few other configurations, with no fewer workers: who
// runs may run on.
func (p *pair) configure(arg int) Event {
	p.cfg.MaxWorkers = min(p.cfg.MaxWorkers+arg%2, 5)
	p.cfg.ScanSpread = time.Duration(arg/2%2) * time.Second
	p.cfg.FastFailureWindow = time.Duration(arg/4%3) * 2 * time.Second
	return Reconfigured{Config: p.cfg}
}
