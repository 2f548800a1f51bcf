// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"errors"
	"net"
	"sync"
	"syscall"
)

// Flow is one end of a flow of datagrams: a Conn, or what stands for one.
type Flow interface {
	Each(take func(p []byte) error) error
	Write(p []byte) (int, error)
	Close() error
}

// Join carries datagrams between a connected UDP socket and a flow, both ways,
// until one of them ends, and closes both. A failure of the socket, such as that
// the port is closed (ECONNREFUSED), is given to failed first, once; the end of
// the flow, in whatever way, is none. It holds memory only while there are
// datagrams.
func Join(socket net.Conn, flow Flow, failed func(error)) {
	var first sync.Once
	fail := func(err error) {
		if !errors.Is(err, net.ErrClosed) {
			first.Do(func() { failed(err) })
		}
	}
	up := make(chan struct{})
	go func() {
		defer close(up)
		ended := false
		err := receive(socket, func(p []byte) error {
			_, err := flow.Write(p)
			if lost(err) {
				return nil
			}
			ended = err != nil
			return err
		})
		if !ended {
			fail(err)
		}
		_ = flow.Close() // then Each ends
	}()
	_ = flow.Each(func(p []byte) error {
		_, err := socket.Write(p)
		if err == nil || lost(err) {
			return nil
		}
		fail(err)
		return err
	})
	_ = socket.Close()
	_ = flow.Close()
	<-up
}

// lost reports whether an error means that one datagram did not get through, as
// happens on any way, and the next one may.
func lost(err error) bool {
	return errors.Is(err, syscall.EMSGSIZE) || errors.Is(err, syscall.ENOBUFS)
}

// receiveHolding is receive for a socket that cannot tell that something is
// there: it keeps memory while it waits.
func receiveHolding(socket net.Conn, take func(p []byte) error) error {
	b := buffers.Get().(*room)
	defer buffers.Put(b)
	for {
		n, err := socket.Read(b[:])
		if err == nil {
			err = take(b[:n])
		}
		if err != nil {
			return err
		}
	}
}
