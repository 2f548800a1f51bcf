// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// SocketName is the name of the socket in a controller's directory.
const SocketName = "admin.sock"

// maxSocketPath is what a unix socket's address holds on every system we know;
// longer paths are reached through a descriptor of their directory.
const maxSocketPath = 100

// ListenSocket listens on a unix socket at path, for the owner only. A socket
// that a dead process left is replaced; one that a live process serves is not.
func ListenSocket(path string) (net.Listener, error) {
	if conn, err := DialSocket(context.Background(), path); err == nil {
		conn.Close()
		return nil, fmt.Errorf("listen on %s: another process serves it", path)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove the socket of a dead process: %w", err)
		}
	}
	short, release, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	ln, err := net.Listen("unix", short)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("restrict %s to its owner: %w", path, err)
	}
	return &socket{ln, path}, nil
}

// socket removes its file, by the path it was given, when it is closed.
type socket struct {
	net.Listener
	path string
}

func (s *socket) Close() error {
	err := s.Listener.Close()
	if err == nil {
		_ = os.Remove(s.path)
	}
	return err
}

// DialSocket connects to a unix socket at path, of any length.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	short, release, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer release()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", short)
	if err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok {
			err = op.Err
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn, nil
}

// shortPath gives a name for path that a socket address holds; release ends it.
func shortPath(path string) (short string, release func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, fmt.Errorf("open the socket's directory: %w", err)
	}
	short = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	return short, func() { dir.Close() }, nil
}
