// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/sdk"
)

// TestStartingControllerDoesNotLie starts a controller anew that waits for a router
// which nobody can dial. For 15 s it serves what it can, says BUSY in place of four
// codes that it cannot be sure of, and of no other; then it knows.
func TestStartingControllerDoesNotLie(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		m.service(ginnel.Service{ID: "refused"}, "r2", "tcp:server:81")
		m.service(ginnel.Service{ID: "island"}, "r3", "tcp:server:80")
		m.router("r4", nil)
		m.service(ginnel.Service{ID: "away"}, "r4", "tcp:server:80")
		m.wait(time.Second)
		m.stopRouter("r4")
		m.update(func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: "late", Key: "its"}) })
		alice := m.client("alice")
		m.stopController("c1")
		began := time.Now()
		m.controller("c1")
		m.wait(3 * time.Second)
		dials := []struct {
			service, instance string
			sure              bool // whatever else is not known
			want              ginnel.Code
		}{
			{"echo", "", true, ginnel.CodeOK},
			{"nothing", "", true, ginnel.InvalidService},
			{"refused", "", true, ginnel.RouterErrConnRefused},
			{"hosted", "", false, ginnel.NoTerminators},
			{"away", "", false, ginnel.NoOnlineTerminators},
			{"echo", "other", false, ginnel.NoTerminatorForInstance},
			{"island", "", false, ginnel.NoPath},
		}
		dial := func(starting bool) {
			for _, d := range dials {
				want := d.want
				if starting && !d.sure {
					want = ginnel.Busy
				}
				conn, err := m.dial(alice, d.service, 900*time.Millisecond, sdk.DialOptions{Instance: d.instance})
				if err == nil {
					_ = conn.Abort()
				}
				got, _ := errors.AsType[*ginnel.DialError](err)
				switch {
				case got == nil && want == ginnel.CodeOK:
				case got == nil || got.Code != want:
					m.Errorf("%s after %v: got %v, want %v", d.service, time.Since(began), err, want)
				case (got.Code == ginnel.Busy) != (got.RetryAfter == ginnel.Duration(time.Second)):
					m.Errorf("%s: retry after %v", d.service, got.RetryAfter)
				}
			}
		}
		dial(true)
		m.wait(14900*time.Millisecond - time.Since(began))
		if m.ctrls["c1"].Ready() {
			m.Error("ready while a router may still come")
		}
		dial(true)
		m.wait(200 * time.Millisecond)
		if !m.ctrls["c1"].Ready() {
			m.Error("not ready after 15 s")
		}
		dial(false)
	})
}
