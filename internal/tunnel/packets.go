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
	"time"

	"github.com/ginnel/ginnel/internal/intercept"
)

// maxDatagram is the longest datagram, in bytes.
const maxDatagram = 65507

// readPause is how long reading rests after an error of a socket.
const readPause = 100 * time.Millisecond

// packetFront takes the datagrams of programs from one socket.
type packetFront struct {
	name   string
	socket intercept.PacketSocket
	flows  *flows
	log    *slog.Logger
	// target gives the host and port that a datagram to an address is for.
	target func(to netip.AddrPort) (host string, port uint16)
}

// toFixed gives one target for all datagrams.
func toFixed(host string, port uint16) func(netip.AddrPort) (string, uint16) {
	return func(netip.AddrPort) (string, uint16) { return host, port }
}

// toSent gives the address that a datagram was sent to.
func toSent(to netip.AddrPort) (host string, port uint16) {
	return to.Addr().Unmap().String(), to.Port()
}

// reply answers a program from the address that it sent to.
func (f *packetFront) reply(key flowKey, p []byte) error {
	return f.socket.WriteTo(p, key.to, key.port)
}

// run reads until ctx ends, then closes the socket, ends the flows and returns
// nil when they have ended.
func (f *packetFront) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = f.socket.Close() })
	defer stop()
	l := life{ctx, &running}
	buf := make([]byte, maxDatagram+1)
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		n, from, to, err := f.socket.ReadFrom(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("%s: %w", f.name, err)
		case err != nil:
			f.log.Warn("datagram not received", "front_end", f.name, "err", err)
			pause.Reset(readPause)
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			continue
		case n > maxDatagram:
			continue // no circuit carries it
		}
		host, port := f.target(to)
		f.flows.take(l, flowKey{from: f, port: from, to: to}, host, port, buf[:n])
	}
}
