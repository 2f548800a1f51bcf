// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"

	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
)

// Outcomes of a dial, as metrics and those who watch see them.
const (
	outcomeConnected = "connected"
	outcomeDuplicate = "duplicate" // it found the router connected
	outcomeHungUp    = "hung_up"   // nobody wants it any more
	outcomeOther     = "failed"    // none of those below
)

// unenrolledError is why a router that asked for it was not enrolled.
type unenrolledError struct{ err error }

func (e *unenrolledError) Error() string { return e.err.Error() }
func (e *unenrolledError) Unwrap() error { return e.err }

// rejectedError says that the other end closed the connection with an alert of
// TLS: it does not take our certificate.
type rejectedError struct{ err error }

func (e *rejectedError) Error() string {
	return fmt.Sprintf("this controller's certificate was not taken: %s", e.err)
}
func (e *rejectedError) Unwrap() error { return e.err }

// failures names the errors of dials, the first that applies. What comes first
// is the more particular.
var failures = []struct {
	outcome string
	is      func(error) bool
}{
	{"proxy_auth", like(transport.ErrProxyAuth)},
	{"proxy", as[*transport.ProxyError]},
	{"not_enrolled", func(err error) bool { return as[*unenrolledError](err) || errors.Is(err, errNotEnrolled) }},
	{"wrong_peer", like(pki.ErrWrongPeer)},
	{"wrong_protocol", like(transport.ErrALPN)},
	{"wrong_role", like(pki.ErrRole)},
	{"stranger", like(pki.ErrStranger)},
	{"expired", like(pki.ErrExpired)},
	{"wrong_version", like(transport.ErrVersion)},
	{"wrong_network", like(transport.ErrNetwork)},
	{"disabled", like(errDisabled)},
	{"deleted", like(errDeleted)},
	{"wrong_key", like(errRekeyed)},
	{"elsewhere", like(errElsewhere)},
	{"rejected", as[*rejectedError]},
	{"greeting", like(transport.ErrGreeting)},
	{"no_address", as[*net.DNSError]},
	{"timeout", func(err error) bool {
		return errors.Is(err, dialer.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
	}},
	{"refused", like(syscall.ECONNREFUSED)},
	{"unreachable", func(err error) bool {
		return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
	}},
	{"closed", func(err error) bool {
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	}},
}

func like(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// outcomeOf names how a dial ended that was not hung up.
func outcomeOf(err error) string {
	if err == nil {
		return outcomeConnected
	}
	for _, f := range failures {
		if f.is(err) {
			return f.outcome
		}
	}
	return outcomeOther
}

// outcomes gives every outcome there is, sorted.
func outcomes() []string {
	all := []string{outcomeConnected, outcomeDuplicate, outcomeHungUp, outcomeOther}
	for _, f := range failures {
		all = append(all, f.outcome)
	}
	slices.Sort(all)
	return all
}

// refusedByAlert gives err as a rejectedError where the other end sent an alert.
func refusedByAlert(err error) error {
	if said, ok := errors.AsType[*net.OpError](err); ok && said.Op == "remote error" {
		return &rejectedError{err}
	}
	return err
}
