// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"net"
)

// DialTCP gives the way to HOST:PORT by TCP.
func DialTCP(address string) Dial { return dialNet("tcp", address) }

// DialUDP gives the way to HOST:PORT by UDP.
func DialUDP(address string) Dial { return dialNet("udp", address) }

func dialNet(network, address string) Dial {
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) }
}
