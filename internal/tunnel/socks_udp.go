// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/splice"
)

// association is a UDP ASSOCIATE of RFC 1928: a socket for the datagrams of one
// client, each with a header that says where to. Names are resolved here. It
// lasts as long as the connection that asked for it.
type association struct {
	socket *plainSocket
	client netip.Addr // whose datagrams alone are taken
	flows  *flows
}

// associate serves a client that has asked for an association. It owns conn.
func (s *server) associate(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	socket, err := s.associationSocket(conn)
	if err != nil {
		s.log.Info("no socket for an association", "err", err)
		_, _ = conn.Write(appendSOCKSReply(nil, socksGeneralFailure))
		return
	}
	defer func() { _ = socket.Close() }()
	at := socket.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	client, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	if _, err := conn.Write(appendSOCKSBound(nil, socksSucceeded, at)); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	a := &association{socket: socket, client: client.Addr().Unmap(), flows: s.flows}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = socket.Close()
		splice.Abort(conn)
	})
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel() // before the flows are waited for
	running.Go(func() { a.run(life{ctx, &running}) })
	_, _ = io.Copy(io.Discard, conn) // until the client ends it
}

// associationSocket opens a socket on the address that the client has reached us at.
func (s *server) associationSocket(conn net.Conn) (*plainSocket, error) {
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return nil, errors.New("the client has not come by TCP")
	}
	return listenPackets(net.JoinHostPort(at.AddrPort().Addr().Unmap().String(), "0"))
}

// run takes the client's datagrams until the socket is closed.
func (a *association) run(l life) {
	buf := make([]byte, maxDatagram+1)
	for {
		n, from, _, err := a.socket.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil {
				return
			}
			continue // of one datagram, such as an ICMP error
		}
		host, to, data, ok := parseSOCKSDatagram(buf[:n])
		if !ok || from.Addr() != a.client {
			a.flows.dropped.Add(1)
			continue
		}
		key := flowKey{from: a, port: from, to: to, host: host}
		if host == "" {
			host = to.Addr().Unmap().String()
		}
		a.flows.take(l, key, host, to.Port(), data)
	}
}

// reply sends a datagram of a flow to the client, with the header of its target.
func (a *association) reply(key flowKey, p []byte) error {
	b := make([]byte, 0, 3+1+1+255+2+len(p))
	b = append(b, 0, 0, 0)
	if key.host != "" {
		b = append(b, socksDomain, byte(len(key.host)))
		b = append(b, key.host...)
		b = append(b, byte(key.to.Port()>>8), byte(key.to.Port()))
	} else {
		b = appendSOCKSAddress(b, key.to)
	}
	return a.socket.WriteTo(append(b, p...), netip.AddrPort{}, key.port)
}

// parseSOCKSDatagram reads the header of section 7: where data is to go, a name
// or an address. Fragments are not put together, as that section allows.
func parseSOCKSDatagram(p []byte) (host string, to netip.AddrPort, data []byte, ok bool) {
	if len(p) < 4 || p[2] != 0 {
		return "", to, nil, false
	}
	kind, rest := p[3], p[4:]
	length := 0
	switch kind {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksDomain:
		if len(rest) == 0 || rest[0] == 0 {
			return "", to, nil, false
		}
		length, rest = int(rest[0]), rest[1:]
	default:
		return "", to, nil, false
	}
	if len(rest) < length+2 {
		return "", to, nil, false
	}
	port := uint16(rest[length])<<8 | uint16(rest[length+1])
	addr := netip.IPv4Unspecified()
	if kind == socksDomain {
		host = string(rest[:length])
	} else {
		addr, _ = netip.AddrFromSlice(rest[:length])
	}
	return host, netip.AddrPortFrom(addr, port), rest[length+2:], port != 0
}

// appendSOCKSAddress appends type, address and port.
func appendSOCKSAddress(b []byte, at netip.AddrPort) []byte {
	addr := at.Addr().Unmap()
	if addr.Is4() {
		b = append(b, socksIPv4)
	} else {
		b = append(b, socksIPv6)
	}
	b = append(b, addr.AsSlice()...)
	return append(b, byte(at.Port()>>8), byte(at.Port()))
}

// appendSOCKSBound appends a reply with the address that was bound.
func appendSOCKSBound(b []byte, reply socksReply, at netip.AddrPort) []byte {
	return appendSOCKSAddress(append(b, socksVersion, byte(reply), 0), at)
}
