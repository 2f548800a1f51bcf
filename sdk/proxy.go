// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"net"
	"net/url"

	"github.com/ginnel/ginnel/internal/transport"
)

// ProxyError says why a proxy opened no way: what it answered, or that it could
// not be asked.
type ProxyError = transport.ProxyError

// ErrProxyAuth is the ProxyError of a proxy that wants a name and password, or
// other ones.
var ErrProxyAuth = transport.ErrProxyAuth

// DialThrough gives what Options.DialNetwork and WithDialNetwork take, through an
// HTTP proxy that opens connections by CONNECT: "http://[USER:PASSWORD@]HOST:PORT".
func DialThrough(proxy *url.URL) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	p, err := transport.ProxyOf(proxy)
	if err != nil {
		return nil, err
	}
	through := p.Network(transport.OS{})
	return func(ctx context.Context, _, address string) (net.Conn, error) { return through.Dial(ctx, address) }, nil
}
