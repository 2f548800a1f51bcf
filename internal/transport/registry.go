// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// pingTimeout is how long a newcomer waits for the older connection to answer.
	pingTimeout = time.Second
	// maxWaiting bounds the newcomers that wait for one key.
	maxWaiting = 16
)

// errReplaced: the other end has a newer connection in place of this one.
var errReplaced = errors.New("replaced by a newer connection")

// Registry holds the connections of one kind: at most one per key, at both
// ends. The deciding end calls Next and Admit, the other end Adopt. Methods may
// be called from any goroutine.
type Registry[K comparable] struct {
	mu   sync.Mutex
	last uint64
	keys map[K]*entry
}

// entry is what is known of one key.
type entry struct {
	arbiter arbiter
	conns   map[uint64]*claim // the holder and those that wait
	boot    string            // of the deciding end, when that is the peer
}

type claim struct {
	conn    *Conn
	verdict chan *wire.Verdict // takes one
}

// NewRegistry gives an empty registry whose connection numbers begin after
// first. Pass a clock in microseconds, so that numbers do not repeat when the
// process starts again.
func NewRegistry[K comparable](first uint64) *Registry[K] {
	return &Registry[K]{last: first, keys: make(map[K]*entry)}
}

// Next gives a connection number for this end's Hello. It is never given again.
func (r *Registry[K]) Next() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	return r.last
}

// Admit decides about connection number of key: ACCEPT, and then the registry
// holds it until it ends, or DUPLICATE, or REFUSE when too many wait or ctx ends. An
// older connection is pinged for 1 s at most. For use as Greeting.Decide.
func (r *Registry[K]) Admit(ctx context.Context, key K, number uint64, c *Conn) *wire.Verdict {
	cl := &claim{conn: c, verdict: make(chan *wire.Verdict, 1)}
	r.mu.Lock()
	e := r.keys[key]
	if e == nil {
		e = &entry{conns: make(map[uint64]*claim)}
		r.keys[key] = e
	}
	if len(e.arbiter.waiting) >= maxWaiting {
		r.mu.Unlock()
		return Refuse(ginnel.Busy, "too many connections at once")
	}
	e.conns[number] = cl
	r.act(key, e, e.arbiter.arrive(number))
	r.mu.Unlock()
	c.AfterClose(func() { r.gone(key, number) })

	select {
	case v := <-cl.verdict:
		return v
	case <-ctx.Done():
		r.gone(key, number)
		return Refuse(ginnel.Busy, "the older connection did not answer in time")
	case <-c.Done():
		return Refuse(ginnel.Cancelled, "connection ended")
	}
}

// Adopt takes a connection that the deciding end has accepted under number. An
// older one of the key is closed. It reports false, and closes c, when a newer
// one of the same life (boot) of the deciding end is held already.
func (r *Registry[K]) Adopt(key K, boot string, number uint64, c *Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.keys[key]
	if e == nil {
		e = &entry{conns: make(map[uint64]*claim)}
		r.keys[key] = e
	}
	if old := e.conns[e.arbiter.holder]; old != nil {
		if e.boot == boot && e.arbiter.holder > number {
			c.Close(errReplaced)
			return false
		}
		old.conn.Close(errReplaced)
		delete(e.conns, e.arbiter.holder)
	}
	e.boot, e.arbiter.holder = boot, number
	e.conns[number] = &claim{conn: c}
	c.AfterClose(func() { r.gone(key, number) })
	return true
}

// Get gives the connection of key and its number; nil when there is none.
func (r *Registry[K]) Get(key K) (*Conn, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.keys[key]; e != nil {
		if cl := e.conns[e.arbiter.holder]; cl != nil {
			return cl.conn, e.arbiter.holder
		}
	}
	return nil, 0
}

// Len gives how many keys have a connection.
func (r *Registry[K]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

// gone frees what number holds of key.
func (r *Registry[K]) gone(key K, number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.keys[key]
	if e == nil || e.conns[number] == nil {
		return
	}
	delete(e.conns, number)
	r.act(key, e, e.arbiter.gone(number))
	if len(e.conns) == 0 {
		delete(r.keys, key)
	}
}

// act carries out what the arbiter of key decided, under mu. It waits for nothing.
func (r *Registry[K]) act(key K, e *entry, actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case accept:
			e.conns[a.number].verdict <- Accept()
		case duplicate:
			e.conns[a.number].verdict <- Duplicate(a.survivor)
			delete(e.conns, a.number)
		case askHolder:
			go r.ask(key, a.number, e.conns[a.number].conn)
		case drop:
			e.conns[a.number].conn.Close(ErrSilent)
			delete(e.conns, a.number)
		}
	}
}

// ask pings the holder of key and tells its arbiter.
func (r *Registry[K]) ask(key K, number uint64, holder *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), pingTimeout)
	defer cancel()
	err := holder.Ping(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.keys[key]
	if e == nil || e.conns[number] == nil {
		return
	}
	if err == nil {
		r.act(key, e, e.arbiter.alive(number))
	} else {
		r.act(key, e, e.arbiter.silent(number))
	}
}
