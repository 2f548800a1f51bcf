// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/ginnel/ginnel"
)

// connectCodes says what an error of the operating system means for a dial.
var connectCodes = []struct {
	err  error
	code ginnel.Code
}{
	{syscall.ECONNREFUSED, ginnel.RouterErrConnRefused},
	{syscall.ECONNRESET, ginnel.RouterErrConnRefused},
	{syscall.ETIMEDOUT, ginnel.RouterErrDialTimedOut},
	{context.DeadlineExceeded, ginnel.RouterErrDialTimedOut},
	{os.ErrDeadlineExceeded, ginnel.RouterErrDialTimedOut},
	{context.Canceled, ginnel.Cancelled},
	{syscall.EMFILE, ginnel.RouterErrResourcesNotAvailable},
	{syscall.ENFILE, ginnel.RouterErrResourcesNotAvailable},
	{syscall.ENOBUFS, ginnel.RouterErrResourcesNotAvailable},
	{syscall.ENOMEM, ginnel.RouterErrResourcesNotAvailable},
	{syscall.EADDRNOTAVAIL, ginnel.RouterErrResourcesNotAvailable},
	{syscall.EACCES, ginnel.RouterErrAddressNotAllowed},
	{syscall.EPERM, ginnel.RouterErrAddressNotAllowed},
}

// Code says why a connection could not be made within ctx. A name that was not
// resolved in time was not resolved, whatever came of the time.
func Code(ctx context.Context, err error) ginnel.Code {
	if _, ok := errors.AsType[*net.DNSError](err); ok && !errors.Is(ctx.Err(), context.Canceled) {
		return ginnel.RouterErrDNSResolutionFailed
	}
	for _, c := range connectCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	switch timeout, ok := errors.AsType[net.Error](err); {
	case errors.Is(ctx.Err(), context.Canceled): // net.Dial has an error of its own for that
		return ginnel.Cancelled
	case ok && timeout.Timeout(), ctx.Err() != nil:
		return ginnel.RouterErrDialTimedOut
	}
	return ginnel.RouterErrGeneric
}
