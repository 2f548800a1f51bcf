// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// transparent is a TCP and a UDP socket on one port of loopback that take
// packets for any address and port of a family.
type transparent struct {
	listener net.Listener
	packets  PacketSocket
	redirect *redirect
}

// openTransparent opens the sockets of the family of an address and adds the routing
// that brings them nothing yet.
func openTransparent(of netip.Addr, pool netip.Prefix, from sources) (*transparent, error) {
	f := familyOf(of)
	listener, packets, err := listenTransparent(f, from)
	if err != nil {
		return nil, fmt.Errorf("transparent sockets of %s: %w", f.name, privileges(err))
	}
	rules := ruleset{family: f, port: listener.Addr().(*net.TCPAddr).AddrPort().Port(), pool: pool}
	for _, prefix := range from {
		if familyOf(prefix.Addr()) == f {
			rules.clients = append(rules.clients, prefix.Masked())
		}
	}
	redirect, err := newRedirect(rules, ownOf(pool))
	if err != nil {
		return nil, errors.Join(err, listener.Close(), packets.Close())
	}
	return &transparent{listener, packets, redirect}, nil
}

// set makes targets exactly what is intercepted.
func (t *transparent) set(targets []Target) error { return t.redirect.set(targets) }

// change takes out and adds targets of single addresses of the range. When it fails
// nothing has changed, and set is due.
func (t *transparent) change(remove, add []Target) error { return t.redirect.rules.change(remove, add) }

// whole reports whether nobody has taken away what openTransparent and set have made.
func (t *transparent) whole() bool { return t.redirect.whole() }

// again makes once more what is not there; set must follow.
func (t *transparent) again() error { return t.redirect.again() }

// close undoes openTransparent and set.
func (t *transparent) close() error {
	_, err := t.redirect.rules.removeRedirect()
	_ = t.listener.Close()
	return errors.Join(err, t.packets.Close())
}

// listenTransparent finds a port that is free for both transports.
func listenTransparent(f *family, from sources) (net.Listener, *farPackets, error) {
	config := net.ListenConfig{Control: controls(from.control, transparentSocket)}
	for attempt := 1; ; attempt++ {
		listener, err := config.Listen(context.Background(), "tcp", netip.AddrPortFrom(f.loopback, 0).String())
		if err != nil {
			return nil, nil, err
		}
		packets, err := config.ListenPacket(context.Background(), "udp", listener.Addr().String())
		if err == nil {
			return listener, newFarPackets(packets.(*net.UDPConn), from), nil
		}
		_ = listener.Close()
		if attempt == 10 {
			return nil, nil, err
		}
	}
}

// markSocket marks a socket as one of the tunneler's own: what it sends is never
// intercepted.
func markSocket(_, _ string, raw syscall.RawConn) error {
	return withSocket(raw, func(fd int) error {
		return privileges(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, markOwn))
	})
}

// control prepares a socket that programs reach: what it sends is ours, and it
// takes packets of this host's programs only, unless others are served too.
func (s sources) control(network, address string, raw syscall.RawConn) error {
	if err := markSocket(network, address, raw); err != nil || len(s) > 0 {
		return err
	}
	return withSocket(raw, func(fd int) error { return unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo") })
}

// transparentSocket lets a socket have addresses that are not this host's and
// tells where each datagram was sent to.
func transparentSocket(_, address string, raw syscall.RawConn) error {
	level, transparent, original := unix.SOL_IP, unix.IP_TRANSPARENT, unix.IP_RECVORIGDSTADDR
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().Is6() {
		level, transparent, original = unix.SOL_IPV6, unix.IPV6_TRANSPARENT, unix.IPV6_RECVORIGDSTADDR
	}
	return withSocket(raw, func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, level, transparent, 1),
			unix.SetsockoptInt(fd, level, original, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		)
	})
}

// controls does one after the other.
func controls(all ...control) control {
	return func(network, address string, raw syscall.RawConn) error {
		for _, c := range all {
			if err := c(network, address, raw); err != nil {
				return err
			}
		}
		return nil
	}
}

func withSocket(raw syscall.RawConn, do func(fd int) error) error {
	var problem error
	if err := raw.Control(func(fd uintptr) { problem = do(int(fd)) }); err != nil {
		return err
	}
	return problem
}

// replySockets is how many sockets for answers are kept: one for each address
// and port that programs have sent to, the least used closed first.
const replySockets = 256

// farPackets is the PacketSocket of redirected datagrams.
type farPackets struct {
	conn *net.UDPConn
	from sources
	oob  [128]byte // of the one reader

	mu      sync.Mutex
	replies map[netip.AddrPort]*reply // guarded by mu; nil: closed
	uses    uint64                    // guarded by mu
}

// reply is a socket bound to an address that a program has sent to.
type reply struct {
	conn *net.UDPConn
	used uint64 // guarded by farPackets.mu; when, as a count of uses
}

func newFarPackets(conn *net.UDPConn, from sources) *farPackets {
	return &farPackets{conn: conn, from: from, replies: make(map[netip.AddrPort]*reply)}
}

// ReadFrom reads a datagram. One goroutine at a time may call it.
func (p *farPackets) ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error) {
	for {
		n, oobn, _, from, err := p.conn.ReadMsgUDPAddrPort(buf, p.oob[:])
		if err != nil {
			return 0, from, to, err
		}
		from = unmap(from)
		to, ok := originalDestination(p.oob[:oobn])
		if ok && p.from.serve(from.Addr(), to.Addr()) {
			return n, from, to, nil
		}
	}
}

// originalDestination finds where a datagram was sent to.
func originalDestination(oob []byte) (netip.AddrPort, bool) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return netip.AddrPort{}, false
	}
	for _, m := range messages {
		address, err := unix.ParseOrigDstAddr(&m)
		if err != nil {
			continue // of another kind
		}
		switch at := address.(type) {
		case *unix.SockaddrInet4:
			return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), true
		case *unix.SockaddrInet6:
			return netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port)), true
		}
	}
	return netip.AddrPort{}, false
}

// WriteTo sends a datagram to a program from the address that it had sent to.
// Any number of goroutines may call it.
func (p *farPackets) WriteTo(buf []byte, from, to netip.AddrPort) error {
	conn, err := p.replyFrom(from)
	if err != nil {
		return fmt.Errorf("answer from %s: %w", from, err)
	}
	_, err = conn.WriteToUDPAddrPort(buf, to)
	return err
}

func (p *farPackets) replyFrom(from netip.AddrPort) (*net.UDPConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.replies == nil {
		return nil, net.ErrClosed
	}
	p.uses++
	if r := p.replies[from]; r != nil {
		r.used = p.uses
		return r.conn, nil
	}
	if len(p.replies) >= replySockets {
		p.closeOldestLocked()
	}
	config := net.ListenConfig{Control: controls(markSocket, transparentSocket)}
	conn, err := config.ListenPacket(context.Background(), "udp", from.String())
	if err != nil {
		return nil, err
	}
	r := &reply{conn.(*net.UDPConn), p.uses}
	p.replies[from] = r
	return r.conn, nil
}

func (p *farPackets) closeOldestLocked() {
	var oldest netip.AddrPort
	least := p.uses
	for from, r := range p.replies {
		if r.used < least {
			oldest, least = from, r.used
		}
	}
	_ = p.replies[oldest].conn.Close() // a writer that has it just now loses a datagram, as on any network
	delete(p.replies, oldest)
}

// Close ends ReadFrom and closes all sockets.
func (p *farPackets) Close() error {
	p.mu.Lock()
	for _, r := range p.replies {
		_ = r.conn.Close()
	}
	p.replies = nil
	p.mu.Unlock()
	return p.conn.Close()
}
