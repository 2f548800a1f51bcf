// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
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
type OS struct{}

// Dial connects over TCP.
func (OS) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	tune(c)
	return c, nil
}

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
