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

// plainSocket is a UDP socket on an address of this host, for the datagrams of
// programs that know that they use a tunneler.
type plainSocket struct{ conn *net.UDPConn }

// listenPackets opens a plainSocket at HOST:PORT.
func listenPackets(address string) (*plainSocket, error) {
	at, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, err
	}
	return &plainSocket{conn}, nil
}

// ReadFrom gives the next datagram; to is not known and not needed.
func (s *plainSocket) ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error) {
	n, from, err = s.conn.ReadFromUDPAddrPort(buf)
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), to, err
}

// WriteTo answers a program.
func (s *plainSocket) WriteTo(buf []byte, _, to netip.AddrPort) error {
	if at := s.conn.LocalAddr().(*net.UDPAddr); at.IP.To4() == nil && to.Addr().Is4() { // a socket of both families
		to = netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
	}
	_, err := s.conn.WriteToUDPAddrPort(buf, to)
	return err
}

// Close ends ReadFrom and WriteTo.
func (s *plainSocket) Close() error { return s.conn.Close() }
