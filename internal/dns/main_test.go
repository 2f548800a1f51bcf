// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("GINNEL_TEST_STATE"); path != "" {
		allotForever(path) // the child of TestL84_KilledAtAnyPoint
		return
	}
	goleak.VerifyTestMain(m)
}
