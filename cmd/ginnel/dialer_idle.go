// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// idleCost is what a controller with connected routers costs that do nothing,
// the routers' ends included.
type idleCost struct {
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

// benchIdle runs a controller that has accepted peers routers in memory.
func benchIdle(ctx context.Context, peers int, duration time.Duration) (found idleCost, err error) {
	ca, err := pki.NewCA("bench", time.Now())
	if err != nil {
		return found, err
	}
	own, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
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
	network := pipe.New()
	cfg := controller.DefaultConfig()
	cfg.Listen = "tls:c1:1"
	c, err := controller.New(controller.Options{
		Config: cfg, Holder: pki.NewHolder(own), CA: ca, Store: st, Network: network.Host("c1"), Log: slog.New(slog.DiscardHandler),
	})
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
	for c.Addr() == nil && ctx.Err() == nil { // nobody can dial before it listens
		benchWait(ctx, time.Millisecond)
	}
	slots := make(chan struct{}, 8)
	var connecting sync.WaitGroup
	for i := range peers {
		id := fmt.Sprintf("r%05d", i)
		credential, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: id})
		if err != nil {
			return found, err
		}
		record := ginnel.Router{ID: ginnel.RouterID(id), Key: credential.KeyHash()}
		revision, err := st.Update(ctx, func(tx *store.Tx) error { return tx.Routers().Put(record) })
		if err == nil {
			err = st.WaitFor(ctx, revision)
		}
		if err != nil {
			return found, errors.Join(context.Cause(ctx), err)
		}
		slots <- struct{}{}
		connecting.Go(func() {
			defer func() { <-slots }()
			conn, err := quietDial(ctx, network.Host(id), id, pki.NewHolder(credential))
			if err != nil {
				cancel(fmt.Errorf("router %s: %w", id, err))
				return
			}
			running.Go(func() { _ = conn.Run(ctx, quietRouter{}) })
		})
	}
	connecting.Wait()
	benchWait(ctx, min(duration, 2*time.Second))
	runtime.GC()
	begun, used := time.Now(), processorTime()
	benchWait(ctx, 2*duration) // two rounds of heartbeats
	found = idleCost{Peers: peers, CPU: (processorTime() - used).Seconds() / time.Since(begun).Seconds()}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	found.Heap = memory.HeapAlloc
	return found, context.Cause(ctx)
}

// quietDial connects a router to the controller.
func quietDial(ctx context.Context, network transport.Network, id string, holder *pki.Holder) (*transport.Conn, error) {
	cfg := pki.ClientConfig(holder, time.Now, ginnel.Peer{Role: ginnel.RoleController}, wire.ALPNCtrl)
	conn, err := transport.DialFramed(ctx, network, "c1:1", cfg, transport.IdentifyBy(holder))
	if err != nil {
		return nil, err
	}
	greeting := transport.Greeting{Self: id, Hello: &wire.Hello{Network: "bench", Boot: "b", Router: &wire.RouterHello{}}}
	if _, err := conn.Handshake(ctx, greeting); err != nil {
		return nil, err
	}
	return conn, conn.Notify(&wire.Message{Body: &wire.Message_State{State: &wire.State{End: true}}})
}
