// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Hold makes connections, inFlight at a time, each to the server's first byte, and
// keeps them: idle ones. It gives the first error, if one fails. What it gives to end
// them must be called in any case.
func Hold(ctx context.Context, dial Dial, count, inFlight int) (end func(), err error) {
	if count < 1 || inFlight < 1 || inFlight > MaxInFlight {
		return func() {}, fmt.Errorf("%d connections, %d at the same time: want at least 1, and 1 to %d", count, inFlight, MaxInFlight)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var held []net.Conn
	var problem error
	turns := make(chan struct{}, inFlight)
	var opening sync.WaitGroup
	for range count {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		opening.Go(func() {
			defer func() { <-turns }()
			conn, err := open(ctx, dial, touch)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				held = append(held, conn)
				return
			}
			if problem == nil {
				problem = fmt.Errorf("connection %d: %w", len(held)+1, err)
			}
			cancel()
		})
	}
	opening.Wait()
	end = func() {
		for _, conn := range held {
			abandon(conn)
		}
	}
	if problem == nil && ctx.Err() != nil {
		problem = context.Cause(ctx)
	}
	return end, problem
}
