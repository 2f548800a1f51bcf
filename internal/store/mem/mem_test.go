// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Backend {
		b := mem.New()
		t.Cleanup(func() { _ = b.Close() })
		return b
	})
}
