// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// Idle is what a controller with connected routers costs that do nothing,
// the routers' ends included.
type Idle struct {
	Peers int     `json:"peers"`
	CPU   float64 `json:"cpu"` // processors
	Heap  uint64  `json:"heap_bytes"`
}

// quietRouter is a router's end that answers heartbeats and no more.
type quietRouter struct{}

// Frame implements transport.Receiver.
func (quietRouter) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// Message implements transport.Receiver.
func (quietRouter) Message(*wire.Message) error { return nil }

// MeasureIdle runs a controller that has accepted peers routers in memory.
func MeasureIdle(ctx context.Context, peers int, duration time.Duration) (found Idle, err error) {
	ca, err := pki.NewCA(network, time.Now())
	if err != nil {
		return found, err
	}
	backend := mem.New()
	st, err := store.New(ctx, backend, store.Options{})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, st.Close(), backend.Close()) }()
	if _, err := controller.Found(ctx, st, ca); err != nil {
		return found, err
	}
	at := pipe.New()
	c, err := newController(ca, st, at)
	if err != nil {
		return found, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			cancel(err)
		}
	})
	var connecting sync.WaitGroup
	defer connecting.Wait()
	slots := make(chan struct{}, 8)
	for i := range peers {
		own, err := enrolled(ctx, ca, st, fmt.Sprintf("r%05d", i))
		if err != nil {
			return found, errors.Join(context.Cause(ctx), err)
		}
		slots <- struct{}{}
		connecting.Go(func() {
			defer func() { <-slots }()
			conn, err := dialController(ctx, at, own, &wire.RouterHello{})
			if err == nil {
				err = conn.Notify(&wire.Message{Body: &wire.Message_State{State: &wire.State{End: true}}})
			}
			if err != nil {
				cancel(err)
				return
			}
			running.Go(func() { _ = conn.Run(ctx, quietRouter{}) })
		})
	}
	connecting.Wait()
	pause(ctx, min(duration, 2*time.Second))
	runtime.GC()
	begun, used := time.Now(), processorTime()
	pause(ctx, 2*duration) // two rounds of heartbeats
	found = Idle{Peers: peers, CPU: (processorTime() - used).Seconds() / time.Since(begun).Seconds()}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	found.Heap = memory.HeapAlloc
	return found, context.Cause(ctx)
}

// enrolled makes a router that the store knows.
func enrolled(ctx context.Context, ca *pki.CA, st *store.Store, id string) (*pki.Credential, error) {
	own, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: id})
	if err != nil {
		return nil, err
	}
	record := ginnel.Router{ID: ginnel.RouterID(id), Key: own.KeyHash()}
	revision, err := st.Update(ctx, func(tx *store.Tx) error { return tx.Routers().Put(record) })
	if err != nil {
		return nil, err
	}
	return own, st.WaitFor(ctx, revision)
}
