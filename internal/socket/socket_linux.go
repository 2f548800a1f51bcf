// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"io"
	"net"
	"syscall"
	"unsafe"
)

// Socket is a TCP socket that can be tried.
type Socket struct {
	conn syscall.RawConn

	// Arguments and results of the functions below, which are made once: a
	// closure for each call would be an allocation for each call.
	reading  func(fd uintptr) bool
	lender   Lender
	vectors  [2]syscall.Iovec
	count    int
	readErr  error
	writing  func(fd uintptr) bool
	out      []byte
	written  int
	writeErr error
}

// Of gives the socket under c, a *net.TCPConn; nil: it is another kind of
// connection, which can only be waited for.
func Of(c any) *Socket {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{conn: raw}
	s.reading, s.writing = s.tryRead, s.tryWrite
	return s
}

// Read waits until something has come and reads it into what l lends. The error
// is io.EOF at the end of the stream, or that of the connection.
func (s *Socket) Read(l Lender) (int, error) {
	s.lender, s.count, s.readErr = l, 0, nil
	err := s.conn.Read(s.reading)
	s.lender, s.vectors = nil, [2]syscall.Iovec{}
	if err == nil {
		err = s.readErr
	}
	return s.count, err
}

func (s *Socket) tryRead(fd uintptr) bool {
	first, second := s.lender.Lend()
	n, err := s.readTwo(int(fd), first, second)
	if n > 0 {
		s.count = n
		return true
	}
	s.lender.Return()
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return false
	case err == nil:
		err = io.EOF
	}
	s.readErr = err
	return true
}

// TryWrite writes what the socket takes at once: 0 and no error when it is full.
func (s *Socket) TryWrite(p []byte) (int, error) {
	s.out, s.written, s.writeErr = p, 0, nil // a closed socket is not tried at all
	err := s.conn.Write(s.writing)
	s.out = nil
	if err == nil {
		err = s.writeErr
	}
	return s.written, err
}

func (s *Socket) tryWrite(fd uintptr) bool {
	for s.written < len(s.out) {
		n, err := WriteNow(int(fd), s.out[s.written:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return true
		case err != nil:
			s.writeErr = err
			return true
		}
		s.written += n
	}
	return true
}

// readTwo is readv(2), as ReadNow is read(2).
func (s *Socket) readTwo(fd int, first, second []byte) (int, error) {
	s.vectors[0].Base = unsafe.SliceData(first)
	s.vectors[0].SetLen(len(first))
	s.vectors[1].Base = unsafe.SliceData(second)
	s.vectors[1].SetLen(len(second))
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&s.vectors[0])), uintptr(len(s.vectors)))
		if !errors.Is(e, syscall.EINTR) {
			return outcome(n, e)
		}
	}
}
