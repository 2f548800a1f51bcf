// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel/internal/wire"
)

// stampSize is the length of what a probe carries to be echoed.
const stampSize = 8

// Sample is one measured round trip.
type Sample struct {
	RTT time.Duration
	// Loaded: frames waited at this end when it was taken, so that it measures
	// queues more than distance.
	Loaded bool
}

// Probing says how a connection probes. Functions are called on the reading
// goroutine and must not wait; nil ones are not called.
type Probing struct {
	// Beat is the rhythm; zero: that of the protocol.
	Beat Beat
	// RTT takes the sample of each answered probe.
	RTT func(Sample)
	// Controllers gives what is added to answers (edge routers).
	Controllers func() *wire.Controllers
	// Heard takes what the peer added to its answer (SDKs).
	Heard func(*wire.Controllers)
}

// pulse is the shell round heartbeat. All under Conn.mu.
type pulse struct {
	probing Probing
	heart   heartbeat
	timer   *time.Timer // nil: not started
	pings   []ping
	least   least
}

// leastOver is for how long, at least, the least round trip is remembered.
const leastOver = 15 * time.Second

// least is the least round trip of late: that of the way itself, while the mean
// of a full connection is that of its queues.
type least struct {
	now, before time.Duration // of this span and of the one before; 0: none
	since       int64         // ns: when this span began
}

// add takes a sample at an instant and gives the least of late.
func (l *least) add(at int64, rtt time.Duration) time.Duration {
	rtt = max(rtt, 1)
	switch {
	case at-l.since > int64(2*leastOver):
		*l = least{since: at}
	case at-l.since > int64(leastOver):
		*l = least{before: l.now, since: at}
	}
	if l.now == 0 || rtt < l.now {
		l.now = rtt
	}
	if l.before != 0 && l.before < l.now {
		return l.before
	}
	return l.now
}

// ping waits for the echo of a probe with this stamp or a later one.
type ping struct {
	stamp int64
	ch    chan struct{}
}

func (p *pulse) stopLocked() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// SetProbing sets how the connection probes, before Run.
func (c *Conn) SetProbing(p Probing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulse.probing = p
}

// SetBeat changes the rhythm, at any time.
func (c *Conn) SetBeat(beat Beat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulse.probing.Beat = beat
	if c.pulse.timer != nil && c.err == nil {
		c.pulse.heart.change(c.now(), beat)
		c.pulse.timer.Reset(0)
	}
}

// startPulse begins with a probe at once, so that a link is measured at once.
func (c *Conn) startPulse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	beat := c.pulse.probing.Beat
	if beat == (Beat{}) {
		beat = BeatOf(c.alpn, false)
	}
	c.pulse.heart.start(c.now(), beat)
	c.pulse.timer = time.AfterFunc(0, c.tick)
}

// tick is the timer's function.
func (c *Conn) tick() {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	now := c.now()
	probe, dead := c.pulse.heart.step(now, c.heard.Load())
	switch {
	case dead:
		c.failLocked(fmt.Errorf("%w for %s", ErrSilent, c.pulse.heart.beat.Dead))
	case c.busy && time.Since(c.progress) > wedgedAfter:
		c.failLocked(ErrStuck)
	default:
		c.pulse.timer.Reset(time.Duration(c.pulse.heart.due - now))
	}
	c.mu.Unlock()
	if probe {
		c.probe(now)
	}
}

// Distance gives the least round trip of the last half minute or so, queues left
// out; 0: unknown.
func (c *Conn) Distance() time.Duration { return time.Duration(c.distance.Load()) }

func (c *Conn) probe(stamp int64) {
	var frame [wire.HeaderSize + stampSize]byte
	b := wire.AppendUint64Frame(frame[:0], 0, wire.Probe, uint64(stamp))
	c.sendProbe(nil, b)
}

// Ping sends a probe and waits for its echo: nil means that the peer is there.
func (c *Conn) Ping(ctx context.Context) error {
	p := ping{stamp: c.now(), ch: make(chan struct{})}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.pulse.pings = append(c.pulse.pings, p)
	c.mu.Unlock()
	defer c.forget(p)
	c.probe(p.stamp)
	select {
	case <-p.ch:
		return nil
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Conn) forget(p ping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.pulse.pings {
		if c.pulse.pings[i].ch == p.ch {
			c.pulse.pings = append(c.pulse.pings[:i], c.pulse.pings[i+1:]...)
			return
		}
	}
}

// probed answers a probe, or takes an answer.
func (c *Conn) probed(h wire.Header, frame []byte) error {
	payload := frame[wire.HeaderSize:]
	if len(payload) < stampSize {
		return fmt.Errorf("%w: probe of %d bytes", wire.ErrFrame, len(payload))
	}
	if h.Flags&wire.FlagReply != 0 {
		return c.echoed(payload)
	}
	reply := newBuffer(smallBuffer)
	defer reply.free()
	payload = payload[:stampSize]
	if provide := c.probing().Controllers; provide != nil {
		reply.b = append(reply.b, payload...)
		extended, err := proto.MarshalOptions{}.MarshalAppend(reply.b, provide())
		if err == nil && len(extended) <= maxProbes-wire.HeaderSize {
			payload = extended
		}
	}
	c.sendProbe(&c.batch, wire.AppendFrame(nil, 0, wire.Probe, wire.FlagReply, payload))
	return nil
}

func (c *Conn) probing() Probing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pulse.probing
}

// echoed takes the answer to a probe of ours.
func (c *Conn) echoed(payload []byte) error {
	stamp := int64(binary.BigEndian.Uint64(payload))
	now := c.now()
	if stamp < 0 || stamp > now {
		return fmt.Errorf("%w: answer to a probe that was not sent", wire.ErrFrame)
	}
	c.mu.Lock()
	probing, loaded := c.pulse.probing, c.busy
	keep := c.pulse.pings[:0]
	for _, p := range c.pulse.pings {
		if stamp >= p.stamp {
			close(p.ch)
		} else {
			keep = append(keep, p)
		}
	}
	c.pulse.pings = keep
	c.distance.Store(int64(c.pulse.least.add(now, time.Duration(now-stamp))))
	c.mu.Unlock()
	if probing.RTT != nil {
		probing.RTT(Sample{RTT: time.Duration(now - stamp), Loaded: loaded})
	}
	if probing.Heard != nil { // an empty list is one, too: the router has no controller
		list := new(wire.Controllers)
		if err := proto.Unmarshal(payload[stampSize:], list); err != nil {
			return fmt.Errorf("%w: controllers: %w", wire.ErrFrame, err)
		}
		probing.Heard(list)
	}
	return nil
}
