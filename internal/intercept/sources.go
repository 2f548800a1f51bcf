// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"fmt"
	"net/netip"
	"syscall"
)

// control prepares a socket before it is bound or connected.
type control = func(network, address string, raw syscall.RawConn) error

// sources are the prefixes of other hosts whose programs are served beside
// this host's own. A tunneler dials with its own rights, so a neighbour who
// merely routes packets to it must not get in.
type sources []netip.Prefix

// serve reports whether a program at from, who sent to the address to, is served.
// Without prefixes the sockets hear of nobody else's packets.
func (s sources) serve(from, to netip.Addr) bool {
	if len(s) == 0 || from == to { // a program that was given the synthetic address as its own
		return true
	}
	for _, prefix := range s {
		if prefix.Contains(from) {
			return true
		}
	}
	return ownAddress(from)
}

// Own gives the Control of a net.Dialer for the tunneler's own connections:
// they are never intercepted, and to addresses of pool, which stand for names,
// they fail. Both together make loops impossible. It takes CAP_NET_ADMIN.
func Own(pool netip.Prefix) control {
	return func(network, address string, raw syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err == nil {
			if err := Outside(pool, at.Addr()); err != nil {
				return err
			}
		}
		return markSocket(network, address, raw)
	}
}

// Outside says why the tunneler cannot use addr itself; nil: it can.
func Outside(pool netip.Prefix, addr netip.Addr) error {
	if pool.Contains(addr.Unmap()) {
		return fmt.Errorf("%s lies in the range %s, whose addresses stand for names: choose another --range", addr, pool)
	}
	return nil
}
