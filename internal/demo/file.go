// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// block is what the file is made of: repeated, with its number in front.
const block = 64 << 10

// fileServer is a real HTTP server on loopback with one big file.
type fileServer struct {
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	size     int64
	sum      [sha256.Size]byte
}

func newFileServer(size int64) (*fileServer, error) {
	if size < LeastSize {
		return nil, fmt.Errorf("file of %d bytes: at least %d", size, LeastSize)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("file server: %w", err)
	}
	s := &fileServer{listener: l, size: size / block * block}
	sum := sha256.New()
	if err := s.writeTo(sum); err != nil {
		return nil, err
	}
	sum.Sum(s.sum[:0])
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	s.serving.Go(func() { _ = s.server.Serve(l) })
	return s, nil
}

func (s *fileServer) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.FormatInt(s.size, 10))
	_ = s.writeTo(w) // who left does not care
}

// writeTo writes the file: no two blocks of it are the same.
func (s *fileServer) writeTo(w io.Writer) error {
	b := make([]byte, block)
	for i := range b {
		b[i] = byte(i * 31 >> 3)
	}
	var n int64
	for i := int64(0); n < s.size; i++ {
		copy(b, fmt.Sprintf("%016d", i))
		m, err := w.Write(b)
		n += int64(m)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *fileServer) address() string { return s.listener.Addr().String() }

func (s *fileServer) close() {
	if err := s.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return
	}
	s.serving.Wait()
}
