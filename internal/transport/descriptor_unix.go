// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package transport

import (
	"errors"
	"io"
	"net"
	"syscall"

	system "github.com/ginnel/ginnel/internal/socket"
)

// descriptor is the socket of a TCP connection.
type descriptor struct {
	conn syscall.RawConn

	// Arguments and results of readOnce, which is made once: a closure for
	// each read would be an allocation for each read.
	readOnce func(fd uintptr) bool
	wait     bool
	in       *[rawBuffer]byte
	read1    int
	readErr  error

	writeOnce func(fd uintptr) bool
	out       []byte
	written   int
	writeErr  error
}

// newSocket gives c's socket, or nil when it has none.
func newSocket(c net.Conn) socket {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return nil
	}
	d := &descriptor{conn: rc}
	d.readOnce = d.tryRead
	d.writeOnce = d.tryWrite
	return d
}

func (d *descriptor) read(wait bool) (in *[rawBuffer]byte, n int, err error) {
	d.wait = wait
	d.read1 = 0
	err = d.conn.Read(d.readOnce)
	in, d.in = d.in, nil
	if err == nil {
		err = d.readErr
	}
	return in, d.read1, err
}

func (d *descriptor) tryRead(fd uintptr) bool {
	// The buffer is held only while there is something to put into it, not
	// while the connection is idle.
	in := rawBuffers.Get().(*[rawBuffer]byte)
	n, err := ignoreInterrupt(system.ReadNow, int(fd), in[:])
	if n > 0 {
		d.in, d.read1, d.readErr = in, n, nil
		return true
	}
	rawBuffers.Put(in)
	d.in, d.read1, d.readErr = nil, 0, err
	switch {
	case errors.Is(err, syscall.EAGAIN):
		d.readErr = errWouldBlock
		return !d.wait
	case err == nil:
		d.readErr = io.EOF
	}
	return true
}

func (d *descriptor) write(p []byte) (int, error) {
	d.out, d.written, d.writeErr = p, 0, nil // a closed socket is not tried at all
	err := d.conn.Write(d.writeOnce)
	d.out = nil
	if err == nil {
		err = d.writeErr
	}
	return d.written, err
}

func (d *descriptor) tryWrite(fd uintptr) bool {
	d.written, d.writeErr = ignoreInterrupt(system.WriteNow, int(fd), d.out)
	if errors.Is(d.writeErr, syscall.EAGAIN) {
		d.writeErr = errWouldBlock
	}
	return true
}

func ignoreInterrupt(call func(int, []byte) (int, error), fd int, p []byte) (int, error) {
	for {
		n, err := call(fd, p)
		if !errors.Is(err, syscall.EINTR) {
			return max(n, 0), err
		}
	}
}
