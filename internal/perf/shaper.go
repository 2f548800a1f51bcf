// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Shaper is a far link in user space: each connection to it goes on to Next, and
// its bytes take their time. It loses none.
type Shaper struct {
	Next  string        // HOST:PORT
	Delay time.Duration // in each direction
	Rate  int           // bytes a second, in each direction of each connection
}

// shaperQueue is how much time's worth of bytes may wait for their turn at the
// link, beside those on their way.
const shaperQueue = 20 * time.Millisecond

// Serve carries the connections of listener until ctx ends, then closes it and
// all connections and gives nil. Any other end is an error.
func (s Shaper) Serve(ctx context.Context, listener net.Listener) error {
	return accept(ctx, listener, maxServed, func(ctx context.Context, from net.Conn) {
		defer from.Close()
		defer interruptible(ctx, from)()
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		to, err := new(net.Dialer).DialContext(opening, "tcp", s.Next)
		if err != nil {
			return // the other end sees the end
		}
		defer to.Close()
		defer interruptible(ctx, to)()
		var back sync.WaitGroup
		back.Go(func() { s.carry(from, to) })
		s.carry(to, from)
		back.Wait()
	})
}

// parcel is some bytes on their way; none: the end of the stream.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry moves one direction.
func (s Shaper) carry(to, from net.Conn) {
	way := make(chan parcel, 1<<12)
	var delivering sync.WaitGroup
	delivering.Go(func() {
		for p := range way {
			time.Sleep(time.Until(p.due))
			if err := deliver(to, p.bytes); err != nil {
				_ = hangUp(to, from, err)
			}
		}
	})
	defer delivering.Wait()
	defer close(way)
	free := time.Now() // when the link has sent all that waits
	for {
		buf := make([]byte, chunk/4)
		n, err := from.Read(buf)
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(n) * time.Second / time.Duration(s.Rate))
		if n > 0 || errors.Is(err, io.EOF) {
			way <- parcel{buf[:n], free.Add(s.Delay)}
		}
		if n > 0 && errors.Is(err, io.EOF) {
			way <- parcel{nil, free.Add(s.Delay)}
		}
		if err != nil {
			return
		}
		time.Sleep(time.Until(free) - shaperQueue)
	}
}

func deliver(to net.Conn, p []byte) error {
	if len(p) == 0 {
		return closeWrite(to)
	}
	_, err := to.Write(p)
	return err
}
