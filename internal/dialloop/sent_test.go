// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialloop

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// A connection that is lost before the machine has heard of it does not count
// as up for ever: whoever lost it reports it once more when told that the
// outcome was sent.
func TestLostBeforeSent(t *testing.T) {
	for name, outcome := range map[string]error{"own dial": nil, "duplicate": &DuplicateError{Conn: 7}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l *Loop
				n := &network{start: time.Now()}
				opts := n.options(fast(), dialer.Addresses{"r": {"tls:a:1"}})
				dials := 0
				opts.Dial = func(context.Context, dialer.Key, ginnel.Address) (uint64, error) {
					if dials++; dials > 1 {
						return 0, errors.New("refused")
					}
					l.Send(dialer.ConnLost{Key: "r", Conn: 7}) // too early: the machine does not know it
					return 7, outcome
				}
				opts.Sent = func(key dialer.Key, conn uint64) { l.Send(dialer.ConnLost{Key: key, Conn: conn}) }
				l = New(opts)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					l.Run(ctx)
				}()
				l.Send(dialer.Updated{Key: "r"})
				synctest.Wait()
				err := l.Ask(ctx, func(d *dialer.Dialer) {
					if s, ok := d.Status("r"); !ok || s.State != dialer.NeedsDial || s.Conn != 0 {
						t.Errorf("status: %+v", s)
					}
				})
				if err != nil {
					t.Error(err)
				}
				cancel()
				<-done
			})
		})
	}
}
