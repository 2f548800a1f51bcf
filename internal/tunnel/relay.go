// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"

	"github.com/ginnel/ginnel/internal/splice"
)

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
