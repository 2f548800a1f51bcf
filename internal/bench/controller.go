// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
)

// Controller is what a controller with a large store does, and needs.
type Controller struct {
	Services    int             `json:"services"`
	Identities  int             `json:"identities"`
	Policies    int             `json:"policies"`
	Routers     int             `json:"routers"`
	Subscribers int             `json:"subscribers"`
	Fill        ginnel.Duration `json:"fill"`
	Start       ginnel.Duration `json:"start"`
	Heap        uint64          `json:"heap_bytes"`     // of store and controller, before routers connect
	Resident    uint64          `json:"resident_bytes"` // of the process then; 0: not known here
	Chosen      Decisions       `json:"chosen"`         // of the same dials as Idle, without ticket and sending
	Idle        Decisions       `json:"idle"`
	Change      Changes         `json:"change"`
	Burst       Burst           `json:"burst"`
	HeapAfter   uint64          `json:"heap_bytes_after"` // with routers and subscribers, when all is over
	HeapBefore  uint64          `json:"heap_bytes_before"`
}

// Decisions is how long decisions took. Percentiles are bounds from above,
// 15 % apart.
type Decisions struct {
	Dials int             `json:"dials"`
	P50   ginnel.Duration `json:"p50"`
	P99   ginnel.Duration `json:"p99"`
	Max   ginnel.Duration `json:"max"`
}

// Changes is what a single change of the store costs.
type Changes struct {
	Changes   int             `json:"changes"`
	Told      ginnel.Duration `json:"told"` // the median until the last client that it concerns has heard
	ToldMax   ginnel.Duration `json:"told_max"`
	Concerned int             `json:"concerned"` // clients, of each change
	Lists     int             `json:"lists"`     // lists that were sent for all of them
	Decisions Decisions       `json:"decisions"`
}

// Burst is what many changes cost.
type Burst struct {
	Writes    int             `json:"writes"`
	PerSecond float64         `json:"per_second"`
	Settled   ginnel.Duration `json:"settled"` // from the last write until the last list
	Lists     int             `json:"lists"`
	Decisions Decisions       `json:"decisions"`
}

// Size is how large a network is measured, and how much is done in it.
type Size struct {
	Services    int // in the store, each with a terminator
	Identities  int
	Policies    int
	Routers     int // connected
	Subscribers int // identities that are connected and told of their services
	Dials       int // of the measurement of decisions
	Changes     int // single ones
	Writes      int // of the burst
}

// Check says why a size cannot be measured.
func (s Size) Check() error {
	for _, n := range []int{s.Services, s.Identities, s.Policies, s.Subscribers, s.Dials, s.Changes, s.Writes} {
		if n < 1 {
			return errors.New("every number must be at least 1")
		}
	}
	switch {
	case s.Routers < regions:
		return fmt.Errorf("%d routers: want at least %d", s.Routers, regions)
	case s.Subscribers > s.Identities:
		return fmt.Errorf("%d subscribers: want at most as many as identities, %d", s.Subscribers, s.Identities)
	}
	return nil
}

// MeasureController fills a store on disk and measures a controller on it. It does so in
// a directory that is gone afterwards; say tells what is being done.
func MeasureController(ctx context.Context, size Size, say func(string)) (found Controller, err error) {
	dir, err := os.MkdirTemp("", "ginnel-controller-*")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	found = Controller{
		Services: size.Services, Identities: size.Identities, Policies: size.Policies, Routers: size.Routers, Subscribers: size.Subscribers,
	}
	say(fmt.Sprintf("writing %d services", size.Services))
	begun := time.Now()
	n, err := newControllerNet(size)
	if err != nil {
		return found, err
	}
	if err := withStore(ctx, dir, func(st *store.Store) error { return n.fill(ctx, st) }); err != nil {
		return found, err
	}
	found.Fill = ginnel.Duration(time.Since(begun))

	debug.FreeOSMemory()
	before := heapInUse()
	begun = time.Now()
	err = withStore(ctx, dir, func(st *store.Store) (err error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if err := n.start(ctx, st, cancel); err != nil {
			return err
		}
		defer n.running.Wait()
		defer cancel(nil)
		found.Start = ginnel.Duration(time.Since(begun))
		found.Resident = residentBytes()
		found.Heap = heapInUse() - before
		say("connecting routers and clients")
		if err := n.connect(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		return errors.Join(n.measure(ctx, &found, say), context.Cause(ctx))
	})
	return found, err
}

// withStore opens the store in a directory for as long as use uses it.
func withStore(ctx context.Context, dir string, use func(*store.Store) error) (err error) {
	backend, err := etcd.Open(ctx, dir, etcd.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	st, err := store.New(ctx, backend, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return use(st)
}
