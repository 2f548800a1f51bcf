// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/sdk"
)

// maxDatagram is the longest datagram, in bytes.
const maxDatagram = 65507

// joinPackets carries datagrams between the command's streams and conn, each
// read of the input as one, until none has come for wait after the input's end,
// or the other end closes; then it closes conn.
func joinPackets(cmd *cobra.Command, conn *sdk.PacketConn, wait time.Duration) error {
	stop := context.AfterFunc(cmd.Context(), func() { _ = conn.Abort() })
	defer stop()
	ended := make(chan struct{})
	sent := make(chan error, 1)
	go func() { // left behind when it reads a terminal: the process ends
		defer close(ended)
		p := make([]byte, maxDatagram)
		for {
			n, err := cmd.InOrStdin().Read(p)
			if n > 0 {
				if _, err := conn.Write(p[:n]); err != nil {
					sent <- err
					return
				}
			}
			if err != nil {
				_ = conn.SetReadDeadline(time.Now().Add(wait))
				if !errors.Is(err, io.EOF) {
					sent <- err
				}
				return
			}
		}
	}()
	err := conn.Each(func(p []byte) error {
		select {
		case <-ended:
			_ = conn.SetReadDeadline(time.Now().Add(wait))
		default:
		}
		_, err := cmd.OutOrStdout().Write(p)
		return err
	})
	select {
	case failed := <-sent:
		err = failed
	default:
	}
	switch {
	case cmd.Context().Err() != nil:
		return context.Cause(cmd.Context())
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ginnel.IdleTimeout), errors.Is(err, net.ErrClosed):
		return conn.Close()
	}
	_ = conn.Abort()
	return err
}
