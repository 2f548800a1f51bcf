// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"sync"
	"time"
)

// node is one process of the network, as it would be. start and end are called
// by one goroutine at a time; the rest by any, at any time.
type node interface {
	// start begins a life: it returns when the node runs, or why it does not.
	start(ctx context.Context) error
	// end ends the life at once, as kill -9 would, and waits until nothing of
	// it is left.
	end()
	// state is "running", "silent" or "dead".
	state() string
	// hush makes the node silent, or ends that.
	hush(on bool) error
	// missing says what the node still lacks to be ready; empty: nothing.
	missing(l *Lab) []string
}

// life is what a node has between start and end.
type life struct {
	mu     sync.Mutex
	ground ground
	silent bool
	cancel context.CancelFunc
	over   sync.WaitGroup // its goroutines
	failed chan struct{}  // closed when a part has ended by itself
	cause  error          // why; nil: none has
}

// begin starts a life on g.
func (v *life) begin(ctx context.Context, g ground) context.Context {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx, v.cancel = context.WithCancel(ctx)
	v.ground, v.silent = g, false
	v.failed, v.cause = make(chan struct{}), nil
	return ctx
}

// run runs a part of the life.
func (v *life) run(fn func() error) {
	v.over.Go(func() {
		if err := fn(); err != nil {
			v.fail(err)
		}
	})
}

func (v *life) fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cause == nil {
		v.cause = err
		close(v.failed)
	}
}

// await waits until up says that the life runs. The error is why it does not.
func (v *life) await(up func() bool) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if up() {
			return nil
		}
		select {
		case <-tick.C:
		case <-v.failed:
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.cause
		}
	}
}

// end ends the life: the network goes first, so that nothing can say goodbye.
func (v *life) end() {
	v.mu.Lock()
	g, cancel := v.ground, v.cancel
	v.ground, v.cancel = nil, nil
	v.mu.Unlock()
	if cancel == nil {
		return
	}
	g.kill()
	cancel()
	v.over.Wait()
}

// land is the network of the present life; nil when dead.
func (v *life) land() ground {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ground
}

func (v *life) state() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.ground == nil || v.cause != nil:
		return "dead"
	case v.silent:
		return "silent"
	}
	return "running"
}

// stateOf gives the state with the reason of a death that nobody ordered.
func (v *life) stateOf() string {
	v.mu.Lock()
	cause := v.cause
	v.mu.Unlock()
	if cause != nil {
		return "dead: " + cause.Error()
	}
	return v.state()
}

func (v *life) hush(on bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ground == nil {
		return errDead
	}
	if err := v.ground.silence(on); err != nil {
		return err
	}
	v.silent = on
	return nil
}
