// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests mostly wait for something to be noticed.
	if err := flag.Set("test.parallel", "4"); err != nil {
		os.Exit(2)
	}
	goleak.VerifyTestMain(m)
}
