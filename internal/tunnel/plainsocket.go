// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// plainSocket is a UDP socket on this host, for the datagrams of programs that know
// that they use a tunneler. One on all addresses answers from the one that a
// datagram came to: a program that asked there takes answers from nowhere else.
type plainSocket struct {
	conn *net.UDPConn
	any  bool   // it is on all addresses
	oob  []byte // of the one reader
}

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
	s := &plainSocket{conn: conn}
	if s.local().Addr().IsUnspecified() {
		// Whichever family the socket is not of refuses.
		err4 := ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true)
		err6 := ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst, true)
		if err4 != nil && err6 != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", conn.LocalAddr(), err4), conn.Close())
		}
		s.any = true
		s.oob = append(ipv4.NewControlMessage(ipv4.FlagDst), ipv6.NewControlMessage(ipv6.FlagDst)...)
	}
	return s, nil
}

// local gives where the socket is bound.
func (s *plainSocket) local() netip.AddrPort {
	return unmapped(s.conn.LocalAddr().(*net.UDPAddr).AddrPort())
}

func unmapped(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// ReadFrom gives the next datagram. Of a socket on one address to is not known and
// not needed.
func (s *plainSocket) ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error) {
	n, oob, _, from, err := s.conn.ReadMsgUDPAddrPort(buf, s.oob)
	if s.any && err == nil {
		to = netip.AddrPortFrom(destination(s.oob[:oob]), s.local().Port())
	}
	return n, unmapped(from), to, err
}

// destination gives the address that a datagram came to; invalid: the system did
// not say.
func destination(oob []byte) netip.Addr {
	var m6 ipv6.ControlMessage
	if m6.Parse(oob) == nil && m6.Dst != nil {
		addr, _ := netip.AddrFromSlice(m6.Dst)
		return addr.Unmap()
	}
	var m4 ipv4.ControlMessage
	if m4.Parse(oob) == nil && m4.Dst != nil {
		addr, _ := netip.AddrFromSlice(m4.Dst)
		return addr.Unmap()
	}
	return netip.Addr{}
}

// WriteTo answers a program, from the address that its datagram came to.
func (s *plainSocket) WriteTo(buf []byte, from, to netip.AddrPort) error {
	var oob []byte
	switch addr := from.Addr(); {
	case !s.any || !addr.IsValid():
	case addr.Is4():
		oob = (&ipv4.ControlMessage{Src: addr.AsSlice()}).Marshal()
	default:
		oob = (&ipv6.ControlMessage{Src: addr.AsSlice()}).Marshal()
	}
	if s.conn.LocalAddr().(*net.UDPAddr).IP.To4() == nil && to.Addr().Is4() { // a socket of both families
		to = netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
	}
	_, _, err := s.conn.WriteMsgUDPAddrPort(buf, oob, to)
	return err
}

// Close ends ReadFrom and WriteTo.
func (s *plainSocket) Close() error { return s.conn.Close() }
