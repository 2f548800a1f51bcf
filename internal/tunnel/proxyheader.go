// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/ginnel/ginnel"
)

// The parts of a header of the PROXY protocol, version 2 (section 2.2 of its
// specification).
const (
	proxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	proxyLocal     = 0x20 // version 2, no address is passed
	proxyProxied   = 0x21 // version 2, a connection on behalf of another
	proxyTCP4      = 0x11
	proxyTCP6      = 0x21
)

// appendProxyHeader appends the header that tells a server who is at the far
// end. Without a valid source of the family of server it says that nobody knows.
func appendProxyHeader(to []byte, source, server netip.AddrPort) []byte {
	to = append(to, proxySignature...)
	from, at := source.Addr().Unmap(), server.Addr().Unmap()
	if from.Is6() && at.Is4() { // one family for both: the server's address may be written in either
		at = netip.AddrFrom16(at.As16())
	}
	if !from.IsValid() || !at.IsValid() || from.Is4() != at.Is4() {
		return append(to, proxyLocal, 0, 0, 0)
	}
	family := byte(proxyTCP6)
	if from.Is4() {
		family = proxyTCP4
	}
	addresses := append(from.AsSlice(), at.AsSlice()...)
	to = append(to, proxyProxied, family)
	to = binary.BigEndian.AppendUint16(to, uint16(len(addresses)+4))
	to = append(to, addresses...)
	to = binary.BigEndian.AppendUint16(to, source.Port())
	return binary.BigEndian.AppendUint16(to, server.Port())
}

// writeProxyHeader tells the server at conn that source is at the far end, as
// the client says. It closes conn if that fails.
func writeProxyHeader(ctx context.Context, conn net.Conn, source string) error {
	from, _ := netip.ParseAddrPort(source) // whatever else it is: unknown
	server, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	deadline, _ := ctx.Deadline()
	_ = conn.SetWriteDeadline(deadline)
	_, err := conn.Write(appendProxyHeader(nil, from, server))
	if err == nil {
		err = conn.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		return ginnel.Errorf(ginnel.RouterErrGeneric, "PROXY header to %s: %v", server, errors.Join(err, conn.Close()))
	}
	return nil
}
