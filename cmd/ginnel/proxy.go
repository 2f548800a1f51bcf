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
	"github.com/ginnel/ginnel/sdk"
)

// dialNetwork is how an SDK opens its connections.
type dialNetwork = func(ctx context.Context, network, address string) (net.Conn, error)

// proxyFlag adds the flag for the proxy to edge routers.
func proxyFlag(cmd *cobra.Command) {
	cmd.Flags().String("proxy", "", "http://[USER:PASSWORD@]HOST:PORT, a proxy to edge routers; empty: none (default what $HTTPS_PROXY and $NO_PROXY say)")
}

// proxyOf gives how to connect to edge routers by the flag, or else by the
// environment; nil: directly.
func proxyOf(cmd *cobra.Command) (dialNetwork, error) {
	if flag := cmd.Flags().Lookup("proxy"); flag != nil && flag.Changed {
		if flag.Value.String() == "" {
			return nil, nil
		}
		proxy, err := url.Parse(flag.Value.String())
		if err != nil {
			return nil, usagef("--proxy: want http://[USER:PASSWORD@]HOST:PORT") // err may show a password
		}
		dial, err := sdk.DialThrough(proxy)
		if err != nil {
			return nil, usagef("--proxy: %s", err)
		}
		return dial, nil
	}
	environment := httpproxy.FromEnvironment()
	if environment.HTTPSProxy == "" {
		return nil, nil
	}
	return proxyByTarget(environment.ProxyFunc()), nil
}

// proxyByTarget connects through what choose says for each address.
func proxyByTarget(choose func(*url.URL) (*url.URL, error)) dialNetwork {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		proxy, err := choose(&url.URL{Scheme: "https", Host: address})
		if err != nil {
			return nil, fmt.Errorf("$HTTPS_PROXY: %w", err)
		}
		if proxy == nil {
			return transport.OS{}.Dial(ctx, address)
		}
		dial, err := sdk.DialThrough(proxy)
		if err != nil {
			return nil, fmt.Errorf("$HTTPS_PROXY: %w", err)
		}
		return dial(ctx, network, address)
	}
}
