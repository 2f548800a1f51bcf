// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/sdk"
)

// Bounds of flows of datagrams.
const (
	defaultFlows = 4096
	// maxFlowDials is how many flows dial at a time; the others wait.
	maxFlowDials = 64
	// What of a flow waits while it is dialed.
	maxEarlyDatagrams = 16
	maxEarlyBytes     = 128 << 10
	// deadTime is how long no flow is dialed to a service after one failed: each
	// datagram of a flood to a dead service would be a dial.
	deadTime = time.Second
	// maxDeadTime bounds what a busy controller can make of that.
	maxDeadTime = 10 * time.Second
)

// FlowStats counts the flows of datagrams that a Tunnel carries.
type FlowStats struct {
	Open    int    // now
	Dialed  uint64 // flows that came about
	Failed  uint64 // flows whose dial failed
	Dropped uint64 // datagrams of programs that there was no flow or no room for
}

// flowKey names a flow: what comes from one port of a program for one target.
type flowKey struct {
	from replies
	port netip.AddrPort // the program's end
	to   netip.AddrPort // where it sent to; with host only the port counts
	host string         // name that it sent to; empty: to is the address
}

// replies is the program's side of flows.
type replies interface {
	// reply sends a datagram of a flow to its program. It does not wait.
	reply(key flowKey, p []byte) error
}

// flows joins the datagrams of programs to circuits, one for each flow: a table
// that holds a bounded number of them, each with one goroutine, which ends with
// its circuit. Its methods may be called from any goroutine and never wait.
type flows struct {
	connector *connector
	limit     int // most at a time
	perSource int // most of one address
	log       *slog.Logger
	dials     chan struct{} // taken by dials that run

	mu      sync.Mutex
	all     map[flowKey]*flow
	sources map[netip.Addr]int
	dead    map[ginnel.ServiceID]time.Time // until when no flow to it is dialed

	dialed, failed, dropped atomic.Uint64
}

func newFlows(c *connector, limit int, log *slog.Logger) *flows {
	if limit <= 0 {
		limit = defaultFlows
	}
	return &flows{
		connector: c, limit: limit, perSource: max(1, limit/2), log: log,
		dials:   make(chan struct{}, maxFlowDials),
		all:     make(map[flowKey]*flow),
		sources: make(map[netip.Addr]int),
		dead:    make(map[ginnel.ServiceID]time.Time),
	}
}

// stats gives the counts so far.
func (t *flows) stats() FlowStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return FlowStats{Open: len(t.all), Dialed: t.dialed.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load()}
}

// life is that of the front which flows come from.
type life struct {
	ctx     context.Context
	running *sync.WaitGroup
}

// take carries a datagram of a program on to host and port, by its flow or a new
// one.
func (t *flows) take(l life, key flowKey, host string, port uint16, p []byte) {
	f, err := t.flow(l, key, host, port)
	if err != nil {
		t.dropped.Add(1)
		t.log.Debug("datagram dropped", "host", host, "port", port, "err", err)
		return
	}
	f.send(p)
}

var (
	errManyFlows = errors.New("too many flows of datagrams")
	errDead      = errors.New("the service's last dial failed just now")
)

// flow gives the flow of a key, and begins it if there is none.
func (t *flows) flow(l life, key flowKey, host string, port uint16) (*flow, error) {
	t.mu.Lock()
	f := t.all[key]
	t.mu.Unlock()
	if f != nil {
		return f, nil
	}
	service, meta, err := t.connector.find(host, port, ginnel.UDP)
	if err != nil {
		return nil, err
	}
	meta.Source = key.port
	t.mu.Lock()
	defer t.mu.Unlock()
	switch until := t.dead[service]; {
	case t.all[key] != nil:
		return t.all[key], nil
	case time.Now().Before(until):
		return nil, errDead
	case len(t.all) >= t.limit, t.sources[key.port.Addr()] >= t.perSource:
		return nil, errManyFlows
	case l.ctx.Err() != nil:
		return nil, l.ctx.Err()
	}
	delete(t.dead, service)
	f = &flow{table: t, key: key, service: service, meta: meta}
	t.all[key] = f
	t.sources[key.port.Addr()]++
	l.running.Go(func() { f.run(l.ctx) })
	return f, nil
}

// remove takes out a flow that has ended: the next datagram begins another.
func (t *flows) remove(f *flow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, f.key)
	source := f.key.port.Addr()
	if t.sources[source]--; t.sources[source] == 0 {
		delete(t.sources, source)
	}
}

// rest notes that flows to a service come to nothing at present.
func (t *flows) rest(service ginnel.ServiceID, err error) {
	pause := deadTime
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		pause = min(max(pause, time.Duration(d.RetryAfter)), maxDeadTime)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	fresh := now.Before(t.dead[service])
	t.dead[service] = now.Add(pause)
	if len(t.dead) > t.limit { // of services that are no longer asked for
		for id, until := range t.dead {
			if !now.Before(until) {
				delete(t.dead, id)
			}
		}
	}
	if !fresh {
		t.log.Info("flow of datagrams failed", "service", string(service), "err", err)
	}
}

// flow is what a program exchanges with one target from one port.
type flow struct {
	table   *flows
	key     flowKey
	service ginnel.ServiceID
	meta    Meta

	mu     sync.Mutex
	fabric datagram.Flow // nil while it is dialed
	early  [][]byte      // what came meanwhile
	size   int           // of that, in bytes
	full   uint64        // how often fabric had no room
}

// send carries a datagram of the program.
func (f *flow) send(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fabric != nil {
		_, err := f.fabric.Write(p)
		if err != nil || f.overflowed() { // it is ending, or its queue is full
			f.table.dropped.Add(1)
		}
		return
	}
	if len(f.early) == maxEarlyDatagrams || f.size+len(p) > maxEarlyBytes {
		f.table.dropped.Add(1)
		return
	}
	f.early = append(f.early, append([]byte(nil), p...))
	f.size += len(p)
}

// overflowed reports whether the circuit had no room for the datagram before.
func (f *flow) overflowed() bool {
	c, ok := f.fabric.(interface{ Stats() sdk.PacketStats })
	if !ok {
		return false
	}
	before := f.full
	f.full = c.Stats().Dropped
	return f.full > before
}

// run dials and carries what comes back, until the circuit or ctx ends. An idle
// circuit ends by itself.
func (f *flow) run(ctx context.Context) {
	defer f.table.remove(f)
	fabric, err := f.dial(ctx)
	if err != nil {
		if ctx.Err() == nil {
			f.table.failed.Add(1)
			f.table.rest(f.service, err)
		}
		return
	}
	f.table.dialed.Add(1)
	f.up(fabric)
	stop := context.AfterFunc(ctx, func() { _ = fabric.Close() })
	defer stop()
	answered := false
	err = fabric.Each(func(p []byte) error {
		answered = true
		err := f.key.from.reply(f.key, p)
		if errors.Is(err, net.ErrClosed) {
			return err // the program's side is gone; anything else is about this datagram
		}
		return nil
	})
	_ = fabric.Close()
	if err != nil && !answered && ctx.Err() == nil && !errors.Is(err, ginnel.IdleTimeout) && !errors.Is(err, net.ErrClosed) {
		f.table.rest(f.service, err) // the port is closed, say
	}
}

// dial gives the circuit of the flow.
func (f *flow) dial(ctx context.Context) (datagram.Flow, error) {
	select {
	case f.table.dials <- struct{}{}:
		defer func() { <-f.table.dials }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := f.table.connector.dial(ctx, f.service, f.meta)
	if err != nil {
		return nil, err
	}
	fabric, ok := conn.(datagram.Flow)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("BUG: service %s was dialed for datagrams and gave a %T", f.service, conn)
	}
	return fabric, nil
}

// up sends what has waited for the circuit, before anything newer.
func (f *flow) up(fabric datagram.Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.early {
		_, _ = fabric.Write(p) // has room for all of it; an error comes back in Each
	}
	f.fabric, f.early = fabric, nil
}
