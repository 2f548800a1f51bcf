// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// TestNewTerminatorsAreDialedAtOnce makes terminators faster than their router is told
// of them, and dials each as soon as it is made.
func TestNewTerminatorsAreDialedAtOnce(t *testing.T) {
	inMemory(t, func(m *memory) {
		m.usual()
		alice := m.client("alice")
		for i := range 5 {
			id := fmt.Sprintf("new-%d", i)
			m.service(ginnel.Service{ID: ginnel.ServiceID(id)}, "r2", "tcp:server:80")
			began := time.Now()
			m.across(alice, id)
			if took := time.Since(began); took > 200*time.Millisecond {
				m.Errorf("%s came up after %v", id, took)
			}
		}
	})
}
