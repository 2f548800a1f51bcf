// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/splice"
)

// relayDatagrams joins a connected UDP socket and a flow until either ends, or
// ctx does. Both are closed when it returns.
func relayDatagrams(ctx context.Context, socket net.Conn, flow datagram.Flow) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	datagram.Join(socket, flow, func(err error) {
		if conn, ok := flow.(interface{ Fail(err *ginnel.DialError) }); ok {
			conn.Fail(ginnel.Errorf(splice.Code(ctx, err), "the server's socket: %v", err))
		}
	})
}

// relay joins program and fabric until both have ended, one is reset, or ctx
// ends. Both are closed when relay returns.
func relay(ctx context.Context, program, fabric net.Conn) {
	abortBoth := func() {
		splice.Abort(program)
		splice.Abort(fabric)
	}
	stop := context.AfterFunc(ctx, abortBoth)
	defer stop()
	splice.Join(program, fabric, func(error) { abortBoth() })
}
