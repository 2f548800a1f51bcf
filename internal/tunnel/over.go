// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/sdk"
)

// Over gives the Dialer that opens connections by a client of the network.
func Over(client *sdk.Client) Dialer { return overClient{client} }

type overClient struct{ client *sdk.Client }

// DialService gives a connection to service.
func (o overClient) DialService(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
	opts := sdk.DialOptions{Destination: net.JoinHostPort(meta.Name, strconv.Itoa(int(meta.Port)))}
	if meta.Source.IsValid() {
		opts.Source = meta.Source.String()
	}
	if meta.Protocol == string(ginnel.UDP) {
		if meta.Port == dnsPort {
			opts.Answered = askedTime
		}
		conn, err := o.client.DialPacket(ctx, service, opts)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	conn, err := o.client.DialService(ctx, service, opts)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Services gives what may be dialed, and a channel that is closed at a change.
func (o overClient) Services() (current []ginnel.Service, changed <-chan struct{}) {
	changed = o.client.Changed()
	all := o.client.Services()
	if all == nil {
		return nil, changed
	}
	current = []ginnel.Service{}
	for _, s := range all {
		if s.CanDial {
			current = append(current, s.Service)
		}
	}
	return current, changed
}

// How long flows of DNS stay when all questions have their answers: the program
// may ask once more at once, and its question may be on its way to the server.
const (
	dnsPort      = 53
	askedTime    = 200 * time.Millisecond
	answeredTime = time.Second
)

// Host hosts service by a client until ctx ends: what comes is forwarded to
// address, streams to a "tcp:" one, datagrams to a "udp:" one. A dial is answered
// only when the connection to address stands; what keeps that from standing is
// what the dial fails with. A check of opts without an address checks this one, and
// one without a Dial connects as cfg does.
func Host(ctx context.Context, client *sdk.Client, service ginnel.ServiceID, address ginnel.Address, opts sdk.ListenOptions, cfg ForwardConfig) error {
	if opts.Check != nil {
		check := *opts.Check
		check.Address = cmp.Or(check.Address, address)
		if check.Dial == nil {
			check.Dial = cfg.Dialer.DialContext
		}
		opts.Check = &check
	}
	protocol := ginnel.Protocol(address.Scheme())
	if protocol == ginnel.UDP && strings.HasSuffix(string(address), ":53") {
		opts.Answered = answeredTime
	}
	fixed := func(sdk.Incoming) (ginnel.Address, error) { return address, nil }
	return host(ctx, client, service, protocol, string(address), opts, cfg, fixed)
}

// HostRequested hosts service by a client until ctx ends: what comes is forwarded
// to where the client says that its program wants to go, by protocol, if allow
// has it; else the dial fails with what Allow.Check gives.
func HostRequested(ctx context.Context, client *sdk.Client, service ginnel.ServiceID, protocol ginnel.Protocol, allow Allow, opts sdk.ListenOptions, cfg ForwardConfig) error {
	if opts.Check != nil && opts.Check.Address == "" {
		return fmt.Errorf("host %s: a check needs an address: this service has none of its own", service)
	}
	requested := func(in sdk.Incoming) (ginnel.Address, error) {
		if err := allow.Check(in.Destination); err != nil {
			return "", err
		}
		return ginnel.Address(string(protocol) + ":" + in.Destination), nil
	}
	return host(ctx, client, service, protocol, "what "+string(service)+" is asked for", opts, cfg, requested)
}

// host hosts service by a client: what comes is forwarded to the address that
// where gives for it; name stands for that in errors and logs.
func host(ctx context.Context, client *sdk.Client, service ginnel.ServiceID, protocol ginnel.Protocol, name string,
	opts sdk.ListenOptions, cfg ForwardConfig, where func(sdk.Incoming) (ginnel.Address, error),
) error {
	opts.Connect = func(ctx context.Context, in sdk.Incoming) (io.Closer, error) {
		address, err := where(in)
		if err != nil {
			return nil, err
		}
		conn, err := connectTo(ctx, &cfg.Dialer, address)
		if err == nil && cfg.ProxyHeader && address.Scheme() == "tcp" {
			err = writeProxyHeader(ctx, conn, in.Source)
		}
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	backend := func(_ context.Context, accepted net.Conn) (net.Conn, error) {
		if conn, ok := accepted.(interface{ Backend() io.Closer }); ok {
			if backend, ok := conn.Backend().(net.Conn); ok {
				return backend, nil
			}
		}
		return nil, fmt.Errorf("BUG: connection of %s without its backend", service)
	}
	listener, err := listen(client, service, protocol, opts)
	if err != nil {
		return fmt.Errorf("host %s: %w", service, err)
	}
	return forward(ctx, listener, name, backend, cfg.Log)
}

// listen hosts service for what protocol carries.
func listen(client *sdk.Client, service ginnel.ServiceID, protocol ginnel.Protocol, opts sdk.ListenOptions) (net.Listener, error) {
	if protocol == ginnel.UDP {
		return client.ListenPacket(string(service), opts)
	}
	return client.Listen(string(service), opts)
}
