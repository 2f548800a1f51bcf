// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpproxy"

	"github.com/ginnel/ginnel/internal/transport"
)

// dialNetwork is how an SDK opens its connections.
type dialNetwork = func(ctx context.Context, network, address string) (net.Conn, error)

// proxyFlag adds the flag for the proxy to edge routers.
func proxyFlag(cmd *cobra.Command) {
	cmd.Flags().String("proxy", "", "`URL` of a proxy to edge routers, http://[USER:PASSWORD@]HOST:PORT; empty: none (default what $HTTPS_PROXY and $NO_PROXY say)")
}

// proxyOf gives how to connect to edge routers by the flag, or else by the
// environment, over sockets of system; nil: directly.
func proxyOf(cmd *cobra.Command, system transport.OS) (dialNetwork, error) {
	if flag := cmd.Flags().Lookup("proxy"); flag != nil && flag.Changed {
		if flag.Value.String() == "" {
			return directly(system), nil
		}
		proxy, err := url.Parse(flag.Value.String())
		if err != nil {
			return nil, usagef("--proxy: want http://[USER:PASSWORD@]HOST:PORT") // err may show a password
		}
		p, err := transport.ProxyOf(proxy)
		if err != nil {
			return nil, usagef("--proxy: %s", err)
		}
		return dialOf(p.Network(system)), nil
	}
	environment := httpproxy.FromEnvironment()
	if environment.HTTPSProxy == "" {
		return directly(system), nil
	}
	return proxyByTarget(environment.ProxyFunc(), system), nil
}

// directly connects without a proxy; nil, when that is what an SDK does anyway.
func directly(system transport.OS) dialNetwork {
	if system.Dialer == nil {
		return nil
	}
	return dialOf(system)
}

func dialOf(n transport.Network) dialNetwork {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.Dial(ctx, address) }
}

// proxyByTarget connects through what choose says for each address.
func proxyByTarget(choose func(*url.URL) (*url.URL, error), system transport.OS) dialNetwork {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		proxy, err := choose(&url.URL{Scheme: "https", Host: address})
		if err != nil {
			return nil, fmt.Errorf("$HTTPS_PROXY: %w", err)
		}
		if proxy == nil {
			return system.Dial(ctx, address)
		}
		p, err := transport.ProxyOf(proxy)
		if err != nil {
			return nil, fmt.Errorf("$HTTPS_PROXY: %w", err)
		}
		return p.Network(system).Dial(ctx, address)
	}
}
