// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"time"
)

// Network is where connections come from: the operating system's sockets, or
// the twin in transport/pipe. Its methods may be called from any goroutine.
type Network interface {
	// Dial connects to hostport ("HOST:PORT") or gives up when ctx ends.
	Dial(ctx context.Context, hostport string) (net.Conn, error)
	// Listen accepts connections on hostport; port 0 is chosen by the system.
	Listen(hostport string) (net.Listener, error)
}

// notSentLowat is how many bytes a socket may hold that the kernel has not
// sent yet: a full path then shows early, and the writer's queues, which know
// circuits and priorities, hold the rest.
const notSentLowat = 128 << 10

// OS is the Network of TCP sockets. Small writes go out at once (TCP_NODELAY)
// and unsent bytes in the kernel are limited where it can (TCP_NOTSENT_LOWAT).
type OS struct {
	// Resolver looks names up; nil: the system's.
	Resolver *net.Resolver
	// Dialer opens the sockets that dial, and looks names up where Resolver is
	// nil; nil: a plain one.
	Dialer *net.Dialer
}

// Dial connects over TCP. Where ctx has a deadline, the addresses of a name are
// tried one by one in the order in which they were found, each for its share of
// the time that is left; else as the system does it (RFC 8305).
func (o OS) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	c, err := o.dial(ctx, hostport)
	if err != nil {
		return nil, err
	}
	tune(c)
	return c, nil
}

func (o OS) dial(ctx context.Context, hostport string) (net.Conn, error) {
	var d net.Dialer
	if o.Dialer != nil {
		d = *o.Dialer
	}
	d.Resolver = cmp.Or(o.Resolver, d.Resolver)
	deadline, bounded := ctx.Deadline()
	host, port, err := net.SplitHostPort(hostport)
	if _, literal := netip.ParseAddr(host); err != nil || literal == nil || !bounded {
		return d.DialContext(ctx, "tcp", hostport)
	}
	found, err := cmp.Or(d.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var all error
	for i, ip := range found[:min(len(found), maxRecords)] {
		share := time.Until(deadline) / time.Duration(min(len(found), maxRecords)-i)
		limited, cancel := context.WithTimeout(ctx, share)
		c, err := d.DialContext(limited, "tcp", net.JoinHostPort(ip.Unmap().String(), port))
		cancel()
		if err == nil {
			return c, nil
		}
		all = errors.Join(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, all
}

// maxRecords bounds the addresses of a name that one dial tries.
const maxRecords = 16

// Listen listens on TCP.
func (OS) Listen(hostport string) (net.Listener, error) {
	l, err := net.Listen("tcp", hostport)
	if err != nil {
		return nil, err
	}
	return osListener{l}, nil
}

type osListener struct{ net.Listener }

func (l osListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	tune(c)
	return c, nil
}
