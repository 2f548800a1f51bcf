// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

const (
	// renewAgain is the longest wait after a renewal that failed.
	renewAgain = time.Minute
	// lookAgain bounds how long the loop trusts a timer: a machine that slept
	// comes back with timers that are late.
	lookAgain = time.Hour
)

// errNoController: there is no ctrl channel now.
var errNoController = errors.New("no controller is connected")

// run is the goroutine that renews the certificate at two thirds of its life,
// and gives up when the token ends before there was one.
func (e *enrollee) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		news := e.news.next()
		due := e.due()
		if left := time.Until(due); left > 0 {
			timer.Reset(min(left, lookAgain))
			select {
			case <-timer.C:
			case <-news:
			case <-ctx.Done():
				return
			}
			continue
		}
		h := e.held()
		if h == nil {
			e.r.die("%w", cmp.Or(e.token.Expired(time.Now()), pki.ErrTokenExpired))
			return
		}
		if err := e.renew(ctx, h); err != nil && ctx.Err() == nil {
			e.r.log.Warn("renewal of the certificate", "until", h.Load().Leaf.NotAfter, "err", err)
		}
		timer.Reset(pki.RenewPause(h.Load().Leaf, time.Now(), renewAgain))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// due gives when there is something to do by time.
func (e *enrollee) due() time.Time {
	if h := e.held(); h != nil {
		return pki.RenewAt(h.Load().Leaf)
	}
	return e.tokenEnds()
}

// renew asks a controller for a new certificate over the ctrl channel, by the
// relay that enrolling identities use: inside runs TLS between this router and
// the controller, as on any enroll connection. No connection is dropped for it.
func (e *enrollee) renew(ctx context.Context, h *pki.Holder) error {
	ch := e.r.ctrl.any()
	if ch == nil {
		return errNoController
	}
	near, far := net.Pipe()
	defer near.Close()
	stream := e.r.relays.open(ch, false)
	if stream == nil {
		return errRelaysFull
	}
	e.r.running.Go(func() { stream.carry(ctx, far, string(e.r.id)) })

	want := ginnel.Peer{Role: ginnel.RoleController, ID: string(ch.controller)}
	t := tls.Client(near, pki.EnrollClientConfig(h.Load().TLS(), e.anchor, want, time.Now))
	limited, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	if err := t.HandshakeContext(limited); err != nil {
		return fmt.Errorf("renew at controller %s: %w", ch.controller, err)
	}
	if err := e.exchange(limited, t, nil); err != nil {
		return fmt.Errorf("renew at controller %s: %w", ch.controller, err)
	}
	return nil
}
