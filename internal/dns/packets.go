// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// maxQuery is the size of the largest UDP query that is read; a longer one is
// cut off and so refused as malformed.
const maxQuery = 4096

// servePackets answers queries that come to packets until that is closed, and
// returns when all that it began has ended. Names of ours are answered on the
// goroutines that read; only a query that must wait, and has a slot to do so,
// gets a goroutine of its own. So a flood costs no memory.
func (r *Resolver) servePackets(ctx context.Context, packets *net.UDPConn) error {
	// A reply has to leave from the address that was asked, which is not
	// certain on a socket for all addresses. Whichever family the socket is
	// not of refuses.
	if err4, err6 := ipv4.NewPacketConn(packets).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true),
		ipv6.NewPacketConn(packets).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true); err4 != nil && err6 != nil {
		return errors.Join(err4, err6)
	}
	var running sync.WaitGroup
	ends := make([]error, min(4, runtime.GOMAXPROCS(0)))
	for i := range ends {
		running.Go(func() { ends[i] = r.readPackets(ctx, packets, &running) })
	}
	running.Wait()
	return errors.Join(ends...)
}

// readPackets is one of the goroutines that read.
func (r *Resolver) readPackets(ctx context.Context, packets *net.UDPConn, running *sync.WaitGroup) error {
	buffer := make([]byte, maxQuery)
	for {
		count, session, err := dns.ReadFromSessionUDP(packets, buffer)
		switch {
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("read queries: %w", err)
		case err != nil || session == nil: // of one packet: what an earlier reply met
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		query, refusal := parseQuery(buffer[:count])
		if query == nil {
			r.sendPacket(packets, session, refusal)
			continue
		}
		answer, later := r.begin(query, addrOf(session.RemoteAddr()), false)
		if later == nil {
			r.sendPacket(packets, session, fit(query, answer, false))
			continue
		}
		running.Go(func() { r.sendPacket(packets, session, fit(query, later(ctx), false)) })
	}
}

// parseQuery reads a query. It gives nil for one that is malformed, with the
// refusal that its sender gets; that is nil too for what is no query at all:
// an answer is never answered, or two servers could keep each other busy.
func parseQuery(packet []byte) (query, refusal *dns.Msg) {
	const headerSize, response = 12, 0x80 // RFC 1035 section 4.1.1
	if len(packet) < headerSize || packet[2]&response != 0 {
		return nil, nil
	}
	query = new(dns.Msg)
	if err := query.Unpack(packet); err == nil {
		return query, nil
	}
	refusal = new(dns.Msg)
	refusal.Id = uint16(packet[0])<<8 | uint16(packet[1])
	refusal.Response = true
	refusal.Opcode = int(packet[2]>>3) & 0xF
	refusal.Rcode = dns.RcodeFormatError
	return nil, refusal
}

// sendPacket sends answer, if there is one.
func (r *Resolver) sendPacket(packets *net.UDPConn, session *dns.SessionUDP, answer *dns.Msg) {
	if answer == nil {
		return
	}
	wire, err := answer.Pack()
	if err == nil {
		_, err = dns.WriteToSessionUDP(packets, wire, session)
	}
	if err != nil {
		r.log.Debug("dns answer not sent", "err", err)
	}
}

// addrOf gives the IP address of a socket's end.
func addrOf(end net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(end.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
