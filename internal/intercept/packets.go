// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// PacketSocket takes the datagrams of programs and gives them answers that seem
// to come from where the programs sent theirs to. WriteTo may be called from any
// goroutine, ReadFrom by one at a time.
type PacketSocket interface {
	// ReadFrom gives the next datagram: from is the program's end, to the address
	// that it was sent to. What buf has no room for is lost. The error is
	// net.ErrClosed once the socket is closed.
	ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error)
	// WriteTo sends a datagram to a program; from is the address that the program
	// sent to. It does not wait for the network.
	WriteTo(buf []byte, from, to netip.AddrPort) error
	// Close ends ReadFrom and WriteTo.
	Close() error
}

// waiting is how many datagrams wait for ReadFrom before the system has to keep
// them, and drops what it has no room for.
const waiting = 64

// room holds a datagram.
type room [1 << 16]byte

var rooms = sync.Pool{New: func() any { return new(room) }}

// packet is a datagram that waits for ReadFrom.
type packet struct {
	room     *room
	size     int
	from, to netip.AddrPort
}

// packetSockets is a set of UDP sockets, one for each address and port, that
// looks like one.
type packetSockets struct {
	from sources
	bind control // prepares a socket; may be nil
	log  *slog.Logger

	own     socketSet[*net.UDPConn]
	arrived chan packet
	done    chan struct{} // closed by end
	end     func()
	loops   sync.WaitGroup

	mu  sync.RWMutex
	far [2]PacketSocket // of all other addresses of IPv4 and IPv6; nil: none; guarded by mu
}

func newPacketSockets(pool netip.Prefix, limit int, from sources, log *slog.Logger) *packetSockets {
	s := &packetSockets{from: from, log: log, arrived: make(chan packet, waiting), done: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.done) })
	s.own.pool, s.own.limit, s.own.kind, s.own.listen = pool, limit, " for datagrams", s.listen
	return s
}

// listen opens a socket that is bound to one address: a service's port takes the
// datagrams of programs that ask for the service, and no others.
func (s *packetSockets) listen(at netip.AddrPort) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: s.bind}
	conn, err := config.ListenPacket(context.Background(), "udp4", at.String())
	if err != nil {
		return nil, err
	}
	socket := conn.(*net.UDPConn)
	s.loops.Go(func() { s.receiveLoop(socket, at) })
	return socket, nil
}

// receiveLoop hands on the datagrams of one socket until that is closed. It
// holds memory only while one is there.
func (s *packetSockets) receiveLoop(socket *net.UDPConn, at netip.AddrPort) {
	there := readable(socket)
	for there() {
		r := rooms.Get().(*room)
		n, from, err := socket.ReadFromUDPAddrPort(r[:])
		if err != nil {
			rooms.Put(r)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // of one datagram, such as an ICMP error
		}
		if from = unmap(from); !s.from.serve(from.Addr(), at.Addr()) {
			rooms.Put(r)
			continue
		}
		if !s.hand(packet{r, n, from, at}) {
			return
		}
	}
}

// serve hands on the datagrams of far, a socket of IPv4 or, by its number 1, of IPv6,
// which somebody else closes, and answers over it from addresses that have no socket
// of their own.
func (s *packetSockets) serve(number int, far PacketSocket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.far[number] = far
	s.loops.Go(func() {
		for {
			r := rooms.Get().(*room)
			n, from, to, err := far.ReadFrom(r[:])
			if err != nil {
				rooms.Put(r)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				continue // of one datagram
			}
			if !s.hand(packet{r, n, from, to}) {
				return
			}
		}
	})
}

// hand gives p to ReadFrom; false: nobody reads any more.
func (s *packetSockets) hand(p packet) bool {
	select {
	case s.arrived <- p:
		return true
	case <-s.done:
		rooms.Put(p.room)
		return false
	}
}

func unmap(at netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()) }

// ReadFrom gives the next datagram to any of the addresses.
func (s *packetSockets) ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error) {
	select {
	case p := <-s.arrived:
		n = copy(buf, p.room[:p.size])
		rooms.Put(p.room)
		return n, p.from, p.to, nil
	case <-s.done:
		return 0, from, to, net.ErrClosed
	}
}

// WriteTo answers a program from the address that it sent to.
func (s *packetSockets) WriteTo(buf []byte, from, to netip.AddrPort) error {
	socket, own := s.own.at(from)
	s.mu.RLock()
	far := s.far[familyNumber(from.Addr())]
	s.mu.RUnlock()
	if !own && far != nil {
		return far.WriteTo(buf, from, to)
	}
	if !own {
		return fmt.Errorf("answer from %s: %w", from, net.ErrClosed)
	}
	_, err := socket.WriteToUDPAddrPort(buf, to)
	return err
}

// Close closes all sockets of its own. The loops end with it and with the sockets
// that somebody else closes.
func (s *packetSockets) Close() error {
	s.end()
	s.own.close()
	return nil
}
