// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
)

// Dialer opens connections to services. It is called from many goroutines.
type Dialer interface {
	// DialService gives a connection to service: of bytes, or, where meta's
	// protocol is "udp", a datagram.Flow. It returns soon after ctx ends. An error
	// mostly is a *ginnel.DialError.
	DialService(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error)
	// Services gives the services that may be dialed now, nil while that is not
	// known, and a channel that is closed when it has changed.
	Services() (current []ginnel.Service, changed <-chan struct{})
}

// Meta is what the tunneler knows of a program's connection.
type Meta struct {
	Name     string         // host name asked for, canonical; an IP address if the service names one
	Port     uint16         // port asked for
	Protocol string         // "tcp" or "udp"
	Source   netip.AddrPort // the program's end
}

var (
	// ErrUnknownName is why a connection to a host that belongs to no service is refused.
	ErrUnknownName = errors.New("no service has this name")
	// ErrPortNotServed is why a connection to another port of a service's host is refused.
	ErrPortNotServed = errors.New("no service has this port of the name")
)

// connector finds the service of a host and port and dials it.
type connector struct {
	dialer  Dialer
	names   *dns.Resolver
	timeout time.Duration
	gate    *gate
}

// connect gives a connection to the TCP service of host, a name or an address
// that stands for one or belongs to one. leave, which is never nil, must be
// called when the connection has ended.
func (c *connector) connect(ctx context.Context, host string, port uint16, source net.Addr) (conn net.Conn, leave func(), err error) {
	leave = func() {}
	service, meta, err := c.find(host, port, ginnel.TCP)
	if err != nil {
		return nil, leave, err
	}
	if tcp, ok := source.(*net.TCPAddr); ok {
		meta.Source = tcp.AddrPort()
	}
	if err := c.gate.enter(time.Now(), service); err != nil {
		return nil, leave, fmt.Errorf("service %s: %w", service, err)
	}
	leave = func() { c.gate.leave(service) }
	conn, err = c.dial(ctx, service, meta)
	c.gate.dialed(service, err, ctx.Err() != nil)
	return conn, leave, err
}

// find gives the service of host that takes a port and protocol, and what its
// host is told.
func (c *connector) find(host string, port uint16, protocol ginnel.Protocol) (ginnel.ServiceID, Meta, error) {
	target, known, served := c.names.Find(host, port, string(protocol))
	switch {
	case !known:
		return "", Meta{}, fmt.Errorf("%q: %w", host, ErrUnknownName)
	case !served:
		return "", Meta{}, fmt.Errorf("%q port %d: %w", host, port, ErrPortNotServed)
	}
	return target.Service, Meta{Name: target.Name, Port: port, Protocol: string(protocol)}, nil
}

func (c *connector) dial(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.dialer.DialService(ctx, service, meta)
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	return conn, nil
}
