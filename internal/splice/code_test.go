// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

func TestL39_Codes(t *testing.T) {
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	call := func(e syscall.Errno) error { return dial(os.NewSyscallError("connect", e)) }
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want ginnel.Code
	}{
		{"refused", t.Context(), call(syscall.ECONNREFUSED), ginnel.RouterErrConnRefused},
		{"timed out by the kernel", t.Context(), call(syscall.ETIMEDOUT), ginnel.RouterErrDialTimedOut},
		{"timed out by us", late, dial(context.DeadlineExceeded), ginnel.RouterErrDialTimedOut},
		{"timed out by the socket", late, dial(os.ErrDeadlineExceeded), ginnel.RouterErrDialTimedOut},
		{"no such name", t.Context(), dial(&net.DNSError{Err: "no such host", IsNotFound: true}), ginnel.RouterErrDNSResolutionFailed},
		{"resolver is late", late, dial(&net.DNSError{Err: "i/o timeout", IsTimeout: true}), ginnel.RouterErrDNSResolutionFailed},
		{"no sockets left", t.Context(), call(syscall.EMFILE), ginnel.RouterErrResourcesNotAvailable},
		{"no ports left", t.Context(), call(syscall.EADDRNOTAVAIL), ginnel.RouterErrResourcesNotAvailable},
		{"firewall", t.Context(), call(syscall.EPERM), ginnel.RouterErrAddressNotAllowed},
		{"no route", t.Context(), call(syscall.EHOSTUNREACH), ginnel.RouterErrGeneric},
		{"given up", gone, dial(errors.New("operation was canceled")), ginnel.Cancelled},
	} {
		if got := Code(c.ctx, fmt.Errorf("dial db:5432: %w", c.err)); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
