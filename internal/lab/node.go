// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"sync"
)

// node is one process of the network, as it would be. Its methods are called
// by one goroutine at a time, except state.
type node interface {
	// start begins a life: it returns when the node runs, or why it does not.
	start(ctx context.Context) error
	// end ends the life at once, as kill -9 would, and waits until nothing of
	// it is left.
	end()
	// state is "running", "silent" or "dead".
	state() string
	// land is the network of the present life; nil when dead.
	land() ground
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
	failed error          // why Run ended by itself
}

// begin starts a life on g.
func (v *life) begin(ctx context.Context, g ground) context.Context {
	v.mu.Lock()
	defer v.mu.Unlock()
	ctx, v.cancel = context.WithCancel(ctx)
	v.ground, v.silent, v.failed = g, false, nil
	return ctx
}

// run runs a part of the life.
func (v *life) run(fn func() error) {
	v.over.Go(func() {
		if err := fn(); err != nil {
			v.mu.Lock()
			v.failed = err
			v.mu.Unlock()
		}
	})
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

func (v *life) land() ground {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.ground
}

func (v *life) state() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.ground == nil || v.failed != nil:
		return "dead"
	case v.silent:
		return "silent"
	}
	return "running"
}

// hush makes the node silent, or ends that.
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
