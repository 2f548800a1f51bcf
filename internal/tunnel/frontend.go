// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/splice"
)

// frontEnd accepts connections and serves a bounded number of them at a time.
type frontEnd struct {
	name     string // for errors and logs: "socks 127.0.0.1:1080"
	listener net.Listener
	limit    int           // most connections at a time; one more is reset at once
	grace    time.Duration // left to connections when the front end ends
	log      *slog.Logger
	// serve owns conn; it returns soon after ctx ends.
	serve func(ctx context.Context, conn net.Conn)
}

// run accepts until ctx ends, then closes the listener, gives the connections
// their grace, resets them, and returns nil when all have ended.
func (f *frontEnd) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = f.listener.Close() })
	defer stop()
	connections, abortAll := context.WithCancel(context.WithoutCancel(ctx))
	defer abortAll()
	var serving sync.WaitGroup
	err := f.acceptLoop(ctx, connections, &serving)
	ended := make(chan struct{})
	go func() {
		serving.Wait()
		close(ended)
	}()
	timer := time.NewTimer(f.grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
	abortAll()
	<-ended
	return err
}

func (f *frontEnd) acceptLoop(ctx, connections context.Context, serving *sync.WaitGroup) error {
	slots := make(chan struct{}, f.limit)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		conn, err := f.listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				splice.Abort(conn)
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("%s: %w", f.name, err)
		case err != nil:
			// Mostly: out of file descriptors. Connections that end free some.
			f.log.Warn("connection not accepted", "front_end", f.name, "err", err)
			pause.Reset(100 * time.Millisecond)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			splice.Abort(conn)
			continue
		}
		serving.Go(func() {
			defer func() { <-slots }()
			f.serve(connections, conn)
		})
	}
}
