// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// dialFailure is why a service was not dialed, or could not be.
type dialFailure struct {
	service ginnel.ServiceID
	err     error
}

// Error gives "service NAME: " and why.
func (f *dialFailure) Error() string { return fmt.Sprintf("service %s: %s", f.service, f.err) }

// Unwrap gives why.
func (f *dialFailure) Unwrap() error { return f.err }

// LogValue gives the parts of what a DialError says, so that a log of JSON lines tells
// them apart, with the service.
func (f *dialFailure) LogValue() slog.Value {
	why := slog.String("message", f.err.Error())
	if _, whole := f.err.(slog.LogValuer); whole {
		why = slog.Any("", f.err) // its parts, in this group
	}
	return slog.GroupValue(slog.String("service", string(f.service)), why)
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
	ErrUnknownName = errors.New("no service that may be dialed has this name")
	// ErrPortNotServed is why a connection to another port of a service's host is refused.
	ErrPortNotServed = errors.New("no service that may be dialed has this port of the name")
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
		return nil, leave, &dialFailure{service, err}
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
		return nil, &dialFailure{service, err}
	}
	return conn, nil
}
